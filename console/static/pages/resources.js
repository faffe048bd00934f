// The resources with live claims, the longest queues first or by name, beside the folders that their names make.
import {html, useEffect, useMemo, useState} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {distinct, More, useMore} from '../lib/more.js';
import {go, link} from '../lib/router.js';
import {Age, Lasting} from '../lib/time.js';
import {Holder, Loading, numeral, ResourceLink, Rows, Text, Verdict, visible} from '../lib/ui.js';

export const title = 'Resources';

const pageSize = 500;

export function Resources({query}) {
  const prefix = query.prefix ?? '', order = query.order === 'name' ? 'name' : '';
  const asked = {prefix, order: order === 'name' ? '' : 'contended', limit: pageSize};
  const first = useQuery('v1/resources/', asked, {concerns: (name) => name.startsWith(prefix), pace: 2000});
  const more = useMore(first, 'v1/resources/', asked);
  const rows = useMemo(() => distinct([...(first.data ?? []), ...more.rows], (r) => r.resource), [first.data, more.rows]);
  return html`
    <h1>Resources</h1>
    <${Search} prefix=${prefix} order=${order} />
    <div class="beside">
    <${Folders} prefix=${prefix} query=${query} rows=${rows} complete=${first.data && !more.next} />
    <div>
    <${Loading} of=${first} />
    ${first.data && rows.length === 0 && !more.next && html`<p><${Verdict} of=${first}>No resource${prefix ? ' below this prefix' : ''} is held that you may read.<//></p>`}
    ${first.data && (rows.length > 0 || more.next) && html`
      <${Rows} label="Resources" rows=${rows} keyOf=${(row) => row.resource} onEnd=${more.load} columns=${[
        {title: 'Resource', wide: true, cell: (row) => html`<${ResourceLink} name=${row.resource} />`},
        {title: 'Held by', cell: (row) => html`<${Holder} claim=${row.holder} />${row.holding > 1 ? ` and ${row.holding - 1} more` : ''}`},
        {title: 'Held for', number: true, cell: (row) => row.holder && html`<${Age} since=${row.holder.since} />`},
        {title: 'Waiting', number: true, cell: (row) => html`<span class="number">${numeral(row.waiting)}</span>`},
        {title: 'Oldest wait', number: true, cell: (row) => row.oldest_wait !== null && html`<${Lasting} seconds=${row.oldest_wait} at=${first.at} />`},
      ]} />
      <${More} count=${rows.length} what="resources" first=${first} more=${more} />`}
    </div></div>`;
}

/**
 * Folders shows the folders below the prefix, with the numbers of their holders and waiters if all resources are loaded (complete).
 */
function Folders({prefix, query, rows, complete}) {
  const all = useQuery('v1/resources/', {prefix, delimiter: '/', limit: pageSize}, {concerns: (name) => name.startsWith(prefix), pace: 5000});
  const folders = (all.data ?? []).filter((row) => row.folder);
  const total = (folder, field) => rows.reduce((sum, row) => (row.resource.startsWith(folder) ? sum + row[field] : sum), 0);
  const to = (folder) => link(['resources'], {...query, prefix: folder});
  return html`<nav class="folders" aria-label="Folders">
    <${Trail} prefix=${prefix} to=${to} />
    ${folders.length > 0 && html`<ul>${folders.map(({resource: folder}) => html`<li key=${folder}>
      <a class="name folder" href=${to(folder)}><${Text} value=${folder.slice(parentOf(prefix).length)} /></a>
      ${complete && html` <span class="number quiet">${numeral(total(folder, 'holding'))} held, ${numeral(total(folder, 'waiting'))} waiting</span>`}</li>`)}</ul>`}
    ${all.next && html`<p class="quiet">There are more folders.</p>`}
  </nav>`;
}

/** parentOf returns a prefix up to and including its last slash. */
const parentOf = (prefix) => prefix.slice(0, prefix.lastIndexOf('/') + 1);

function Search({prefix, order}) {
  const [text, setText] = useState(prefix);
  useEffect(() => setText(prefix), [prefix]);
  useEffect(() => { // the address follows the typing, without an entry in the history for each letter
    if (text === prefix) return undefined;
    const timer = setTimeout(() => go(link(['resources'], {prefix: text, order}), {replace: true}), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const choose = (value) => go(link(['resources'], {prefix: text, order: value}));
  return html`<form class="filters" role="search" onSubmit=${(e) => e.preventDefault()}>
    <label>Names begin with <input id="search" type="search" maxlength="1024" autocomplete="off" spellcheck=${false} value=${text} onInput=${(e) => setText(e.target.value)} /></label>
    <label>Order <select value=${order} onChange=${(e) => choose(e.target.value)}>
      <option value="">the longest queues first</option><option value="name">by name</option>
    </select></label>
  </form>`;
}

/** Trail links to each parent folder. */
function Trail({prefix, to}) {
  const ends = [];
  for (let i = prefix.indexOf('/'); i >= 0; i = prefix.indexOf('/', i + 1)) ends.push(i + 1);
  if (prefix !== '' && ends.at(-1) !== prefix.length) ends.push(prefix.length);
  return html`<p><a href=${to('')} aria-current=${prefix === '' ? 'true' : undefined}>all</a>${ends.map((end, i) => html` › <a href=${to(prefix.slice(0, end))}
    aria-current=${end === prefix.length ? 'true' : undefined}><bdi>${visible(prefix.slice(ends[i - 1] ?? 0, end))}</bdi></a>`)}</p>`;
}
