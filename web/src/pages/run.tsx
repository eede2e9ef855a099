export function Run() { return <p>Run</p>; }
