export function Dataset() { return <p>Dataset</p>; }
