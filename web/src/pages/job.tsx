export function Job() { return <p>Job</p>; }
