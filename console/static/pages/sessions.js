// The sessions: their owners, the servers that they are attached to, and their numbers of claims.
import {EndSession} from '../lib/end.js';
import {html, useMemo} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {distinct, More, useMore} from '../lib/more.js';
import {Age, duration} from '../lib/time.js';
import {Loading, numeral, Rows, SessionLink, Text} from '../lib/ui.js';

export const title = 'Sessions';

export function Sessions() {
  const wanted = {limit: 200};
  const first = useQuery('v1/sessions/', wanted, {pace: 5000});
  const more = useMore(first, 'v1/sessions/', wanted);
  const rows = useMemo(() => distinct([...(first.data ?? []), ...more.rows], (session) => session.id), [first.data, more.rows]);
  return html`
    <h1>Sessions</h1>
    <p class="quiet">Your own; with the right administer on all resources, those of all. <button type="button" class="small" onClick=${first.reload}>Look again</button></p>
    <${Loading} of=${first} />
    ${first.data && (rows.length === 0 ? html`<p>There is none that you may see.</p>` : html`
      <${Rows} label="Sessions" rows=${rows} keyOf=${(session) => session.id} onEnd=${more.load} columns=${[
        {title: 'Session', cell: (session) => html`<${SessionLink} id=${session.id} />`},
        {title: 'Owner', wide: true, cell: (session) => html`<${Text} value=${session.owner} />`},
        {title: 'Attached to', cell: (session) => (session.server ? html`<${Text} value=${session.server} />` : html`<span class="quiet">none${session.ends_in !== null ? `; ends in ${duration(session.ends_in)}` : ''}</span>`)},
        {title: 'Holding', cell: (session) => html`<span class="number">${numeral(session.holding)}</span>`},
        {title: 'Waiting', cell: (session) => html`<span class="number">${numeral(session.waiting)}</span>`},
        {title: 'Age', cell: (session) => html`<${Age} since=${session.created} />`},
        {title: 'Action', cell: (session) => html`<${EndSession} session=${session} />`},
      ]} />
      <${More} count=${rows.length} what="sessions" first=${first} more=${more} />`)}`;
}
