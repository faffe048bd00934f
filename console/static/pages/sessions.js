// The sessions: their owners, the servers that they are attached to, and their numbers of claims.
import {EndSession} from '../lib/end.js';
import {html, useMemo} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {distinct, More, useMore} from '../lib/more.js';
import {Age, duration} from '../lib/time.js';
import {Loading, numeral, ResourceLink, Rows, SessionLink, Text, Verdict} from '../lib/ui.js';

export const title = 'Sessions';

export function Sessions() {
  const wanted = {limit: 200};
  const first = useQuery('v1/sessions/', wanted, {pace: 5000});
  const more = useMore(first, 'v1/sessions/', wanted);
  const claims = useQuery('v1/claims/', {status: 'active', order: 'newest', limit: 1000}, {pace: 5000});
  const held = useMemo(() => bySession(claims.data ?? []), [claims.data]);
  const rows = useMemo(() => distinct([...(first.data ?? []), ...more.rows], (session) => session.id), [first.data, more.rows]);
  return html`
    <h1>Sessions</h1>
    <p class="quiet">Your sessions (administrators see all). <button type="button" class="small" onClick=${first.reload}>Look again</button></p>
    <${Loading} of=${first} />
    ${first.data && (rows.length === 0 ? html`<p><${Verdict} of=${first}>No sessions that you may see.<//></p>` : html`
      <${Rows} label="Sessions" rows=${rows} keyOf=${(session) => session.id} onEnd=${more.load} columns=${[
        {title: 'Owner', cell: (session) => html`<${Text} value=${session.owner} />`},
        {title: 'Holds', wide: true, cell: (session) => html`<${Names} names=${held.get(session.id) ?? []} count=${session.holding} />`},
        {title: 'Waiting', number: true, cell: (session) => html`<span class="number">${numeral(session.waiting)}</span>`},
        {title: 'Age', number: true, cell: (session) => html`<${Age} since=${session.created} />`},
        {title: 'Attached to', cell: (session) => (session.server ? html`<${Text} value=${session.server} />` : html`<span class="quiet">none${session.ends_in !== null ? `; ends in ${duration(session.ends_in)}` : ''}</span>`)},
        {title: 'Action', cell: (session) => html`<${EndSession} session=${session} />`},
        {title: 'Session', cell: (session) => html`<${SessionLink} id=${session.id} />`},
      ]} />
      <${More} count=${rows.length} what="sessions" first=${first} more=${more} />`)}`;
}

/** bySession returns the resources that claims hold, by the claims' sessions. */
function bySession(claims) {
  const held = new Map();
  for (const {session, resource} of claims) {
    if (!session) continue;
    if (!held.has(session)) held.set(session, []);
    held.get(session).push(resource);
  }
  return held;
}

/** Names lists the first resources that a session holds, up to a number. */
function Names({names, count}) {
  const shown = names.slice(0, 3);
  if (count === 0) return html`<span class="quiet">nothing</span>`;
  if (shown.length === 0) return html`<span class="number">${numeral(count)}</span>`;
  return html`${shown.map((name, i) => html`${i > 0 && ', '}<${ResourceLink} name=${name} />`)}${count > shown.length && ` and ${numeral(count - shown.length)} more`}`;
}
