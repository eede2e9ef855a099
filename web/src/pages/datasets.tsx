import { get } from "../api/client";
import { Breakable, Empty, Time, Wide } from "../components/basics";
import { Paged } from "../components/paged";
import { useTitle } from "../components/use_title";
import { datasetName, pathOf } from "../words/names";
import { Link } from "react-router";
import { useWords } from "./jobs";
import { GettingStarted } from "./welcome";

export function Datasets() {
  useTitle("Datasets");
  const [text, setText, q] = useWords();
  return (
    <>
      <div className="page-head">
        <h1>Datasets</h1>
      </div>
      <div className="filters" role="search">
        <input className="field search" type="search" aria-label="Search datasets" placeholder="words of the name, each at least its beginning" value={text} onChange={(event) => setText(event.target.value)} />
      </div>
      <Paged name={["datasets", q]} ask={(cursor, signal) => get("/api/v1/datasets", { query: { limit: 100, ...(q && { q }), ...(cursor && { cursor }) }, signal })} empty={q ? <Empty title="No dataset is called so" /> : <GettingStarted />}>
        {(datasets) => (
          <Wide isCard>
            <table>
              <thead>
                <tr>
                  <th>Dataset</th>
                  <th className="hide-narrow">Where</th>
                  <th>Last heard of</th>
                </tr>
              </thead>
              <tbody>
                {datasets.map((one) => (
                  <tr key={one.urn}>
                    <td>
                      <Link to={pathOf.dataset(one.urn)} className="mono breaks" title={one.urn}>
                        <Breakable text={datasetName(one.urn)} />
                      </Link>
                      {one.called !== one.urn && <span className="soft small breaks"> the same as {datasetName(one.called)}</span>}
                    </td>
                    <td className="soft breaks hide-narrow">{one.namespace}</td>
                    <td className="soft">{one.last_event_at ? <Time at={one.last_event_at} /> : "only as a source"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Wide>
        )}
      </Paged>
    </>
  );
}
