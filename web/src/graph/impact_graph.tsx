export default function ImpactGraph(props: { urn: string; affected: string[]; atRisk: string[] }) { return <p>{props.urn}</p>; }
