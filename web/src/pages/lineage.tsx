export function Lineage() { return <p>Lineage</p>; }
