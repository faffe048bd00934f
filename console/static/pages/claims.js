// The claims that match filters. The filters are in the address.
import {html, useEffect, useMemo, useState} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {distinct, More, useMore} from '../lib/more.js';
import {go, link} from '../lib/router.js';
import {changedAt, HeldFor, WaitedFor, When} from '../lib/time.js';
import {ClaimLink, Loading, ResourceLink, Rows, Status, Verdict, Who} from '../lib/ui.js';

export const title = 'Claims';

const pageSize = 200;

/** anyStatus is the status in the address for claims of any status; without one, the page has the live ones. */
const anyStatus = 'any';

const filters = [
  {name: 'resource', label: 'Resource'}, {name: 'prefix', label: 'Names begin with'}, {name: 'owner', label: 'Owner'},
  {name: 'status', label: 'Status', values: ['', anyStatus, 'waiting', 'active', 'released', 'expired', 'aborted', 'withdrawn', 'revoked'], names: {'': 'waiting or active', [anyStatus]: 'any'}},
  {name: 'mode', label: 'Mode', values: ['', 'exclusive', 'shared']},
  {name: 'order', label: 'Order', values: ['', 'oldest'], names: {'': 'newest first', oldest: 'oldest first'}},
];
const ranges = [
  ...['active_duration', 'waiting_duration', 'ttl'].flatMap((what) => ['minimum', 'maximum'].map((end) => ({name: `${end}_${what}`, label: `${end} ${what.replace('_', ' ')}, s`, type: 'number'}))),
  {name: 'minimum_created', label: 'created at or after', placeholder: '2026-01-31T12:00:00Z'},
  {name: 'maximum_created', label: 'created at or before', placeholder: '2026-01-31T12:00:00Z'},
];
const known = [...filters, ...ranges].map(({name}) => name);

export function Claims({query}) {
  const asked = Object.fromEntries(known.filter((name) => query[name]).map((name) => [name, query[name]]));
  const wanted = {...asked, status: asked.status === anyStatus ? '' : asked.status ?? 'waiting,active', order: asked.order === 'oldest' ? '' : 'newest', limit: pageSize};
  const concerns = (name) => (!asked.resource || asked.resource === name) && (!asked.prefix || name.startsWith(asked.prefix));
  const first = useQuery('v1/claims/', wanted, {concerns, pace: 3000});
  const more = useMore(first, 'v1/claims/', wanted);
  const rows = useMemo(() => distinct([...(first.data ?? []), ...more.rows], (claim) => claim.id), [first.data, more.rows]);
  return html`
    <h1>Claims</h1>
    <${Filters} query=${asked} />
    <${Loading} of=${first} />
    ${first.data && (rows.length === 0 ? html`<p><${Verdict} of=${first}>No claim matches.<//></p>` : html`
      <${Rows} label="Claims" rows=${rows} keyOf=${(claim) => claim.id} onEnd=${more.load} columns=${[
        {title: 'Resource', wide: true, cell: (claim) => html`<${ResourceLink} name=${claim.resource} />`},
        {title: 'Owner', cell: (claim) => html`<${Who} claim=${claim} />`},
        {title: 'Status', cell: (claim) => html`<${Status} value=${claim.status} />`},
        {title: 'Waited', number: true, cell: (claim) => html`<${WaitedFor} claim=${claim} />`},
        {title: 'Held', number: true, cell: (claim) => html`<${HeldFor} claim=${claim} />`},
        {title: 'Last change', cell: (claim) => html`<${When} at=${changedAt(claim)} />`},
        {title: 'Mode', cell: (claim) => claim.mode},
        {title: 'Claim', cell: (claim) => html`<${ClaimLink} id=${claim.id} />`},
      ]} />
      <${More} count=${rows.length} what="claims" first=${first} more=${more} />`)}`;
}

function Filters({query}) {
  const [values, setValues] = useState(query);
  const key = JSON.stringify(query);
  useEffect(() => setValues(query), [key]);
  const set = (name) => (event) => setValues({...values, [name]: event.target.value});
  const submit = (event) => { event.preventDefault(); go(link(['claims'], values)); };
  const field = ({name, label, values: choices, names, ...more}) => html`<label key=${name}>${label}
    ${choices ? html`<select name=${name} value=${values[name] ?? ''} onChange=${set(name)}>${choices.map((choice) => html`<option key=${choice} value=${choice}>${names?.[choice] ?? (choice.replace(',', ' or ') || 'any')}</option>`)}</select>`
      : html`<input name=${name} autocomplete="off" spellcheck=${false} min="0" step="any" ...${more} value=${values[name] ?? ''} onInput=${set(name)} />`}</label>`;
  return html`<form class="filters" role="search" onSubmit=${submit}>
    ${filters.map(field)}
    <details open=${ranges.some(({name}) => query[name])}><summary>Durations and times</summary><div class="filters">${ranges.map(field)}</div></details>
    <p class="actions"><button type="submit">Search</button> <a href=${link(['claims'])}>Live claims</a></p>
  </form>`;
}
