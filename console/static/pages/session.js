// A session: its claims, and the server that it is attached to.
import {sessionPath} from '../lib/api.js';
import {EndSession} from '../lib/end.js';
import {html, useMemo, useState} from '../lib/html.js';
import {useQuery, useTransitions} from '../lib/live.js';
import {distinct, useMore} from '../lib/more.js';
import {link} from '../lib/router.js';
import {changedAt, duration, When} from '../lib/time.js';
import {ClaimLink, Copy, Loading, numeral, Problem, ResourceLink, Status, Table, Text, Verdict} from '../lib/ui.js';

export const title = ([, id]) => `Session ${id}`;

export function Session({path: [, id]}) {
  const of = useQuery(sessionPath(id), {}, {pace: 2000});
  const session = of.data;
  const wanted = {owner: session?.owner, status: 'waiting,active', limit: 1000}; // there is no list by session
  const claims = useQuery(session ? 'v1/claims/' : null, wanted, {pace: 2000});
  const more = useMore(claims, 'v1/claims/', wanted);
  const read = useMemo(() => distinct([...(claims.data ?? []), ...more.rows], (claim) => claim.id), [claims.data, more.rows]);
  const mine = read.filter((claim) => claim.session === id);
  const [seen, setSeen] = useState([]);
  useTransitions((transition) => { if (transition.claim.session === id) setSeen((all) => [transition, ...all].slice(0, 50)); });
  const row = (name, value) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`
    <p><a href=${link(['sessions'])}>Sessions</a></p>
    <h1>Session <${Text} value=${id} /> <${Copy} value=${id} what="the id" /></h1>
    <${Loading} of=${of} />
    ${session && html`<article class="holder"><dl>
      ${row('Owner', html`<${Text} value=${session.owner} />`)}
      ${row('Attached to', session.server ? html`<${Text} value=${session.server} />` : html`no server${session.ends_in !== null ? `; ends in ${duration(session.ends_in)} unless it is resumed` : ''}`)}
      ${row('TTL', duration(session.ttl))}
      ${row('Created', html`<${When} at=${session.created} />`)}
      ${row('Holding', numeral(session.holding))}
      ${row('Waiting', numeral(session.waiting))}
    </dl><p class="actions"><${EndSession} session=${session} /></p></article>
    <section aria-labelledby="claims"><h2 id="claims">Claims</h2>
      <${Loading} of=${claims} />
      ${claims.data && (mine.length === 0 ? !more.next && html`<p><${Verdict} of=${claims}>No claims that you may read.<//></p>` : html`<${Table} label="Claims" rows=${mine} keyOf=${(claim) => claim.id} columns=${[
          {title: 'Resource', cell: (claim) => html`<${ResourceLink} name=${claim.resource} />`},
          {title: 'Status', cell: (claim) => html`<${Status} value=${claim.status} />`},
          {title: 'Since', cell: (claim) => html`<${When} at=${changedAt(claim)} />`},
          {title: 'Claim', cell: (claim) => html`<${ClaimLink} id=${claim.id} />`},
        ]} />`)}
      ${more.next && html`<p class="quiet">These are among ${numeral(read.length)} claims of its owner, which has more. <button type="button" class="small" onClick=${more.load}>Load more</button></p>`}
      <${Problem} error=${more.error} />
    </section>`}
    ${seen.length > 0 && html`<section aria-labelledby="seen"><h2 id="seen">Since this page was opened</h2>
      <ol reversed>${seen.map((t) => html`<li key=${t.claim.version + t.claim.id}><${ResourceLink} name=${t.claim.resource} />: <${Status} value=${t.claim.status} /> <${When} at=${t.time} /></li>`)}</ol></section>`}`;
}
