export function Datasets() { return <p>Datasets</p>; }
