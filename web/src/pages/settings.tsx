export function Settings() { return <p>Settings</p>; }
