export function Health() { return <p>Health</p>; }
