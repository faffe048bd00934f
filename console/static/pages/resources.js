// The resources with live claims: by prefix, as a tree of the parts between slashes, or by the length of their queues.
import {html, useEffect, useMemo, useState} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {distinct, More, useMore} from '../lib/more.js';
import {go, link} from '../lib/router.js';
import {Age, duration} from '../lib/time.js';
import {Holder, Loading, numeral, ResourceLink, Rows, Text, visible} from '../lib/ui.js';

export const title = 'Resources';

const pageSize = 500;

export function Resources({query}) {
  const prefix = query.prefix ?? '', order = query.order === 'contended' ? 'contended' : '';
  const delimiter = order === '' && query.flat !== 'true' ? '/' : '';
  const asked = {prefix, order, delimiter, limit: pageSize};
  const first = useQuery('v1/resources/', asked, {concerns: (name) => name.startsWith(prefix), pace: 2000});
  const more = useMore(first, 'v1/resources/', asked);
  const rows = useMemo(() => distinct([...(first.data ?? []), ...more.rows], (r) => r.resource), [first.data, more.rows]);
  return html`
    <h1>Resources</h1>
    <${Search} prefix=${prefix} order=${order} flat=${query.flat} />
    ${prefix !== '' && html`<${Trail} prefix=${prefix} query=${query} />`}
    <${Loading} of=${first} />
    ${first.data && rows.length === 0 && !more.next && html`<p>No resource${prefix ? ' below this prefix' : ''} is held that you may read.</p>`}
    ${first.data && (rows.length > 0 || more.next) && html`
      <${Rows} label="Resources" rows=${rows} keyOf=${(row) => row.resource} onEnd=${more.load} columns=${[
        {title: 'Resource', wide: true, cell: (row) => (row.folder
          ? html`<a class="name folder" href=${link(['resources'], {...query, prefix: row.resource})}><${Text} value=${row.resource} /></a>`
          : html`<${ResourceLink} name=${row.resource} />`)},
        {title: 'Held by', cell: (row) => (row.folder ? html`<span class="quiet">a folder</span>`
          : html`<${Holder} claim=${row.holder} />${row.holding > 1 ? ` and ${row.holding - 1} more` : ''}`)},
        {title: 'For', cell: (row) => row.holder && html`<${Age} since=${row.holder.since} />`},
        {title: 'Waiting', cell: (row) => !row.folder && html`<span class="number">${numeral(row.waiting)}</span>`},
        {title: 'Oldest wait', cell: (row) => row.oldest_wait !== null && html`<span class="number">${duration(row.oldest_wait)}</span>`},
      ]} />
      <${More} count=${rows.length} what=${delimiter ? 'resources and folders' : 'resources'} first=${first} more=${more} />`}`;
}

function Search({prefix, order, flat}) {
  const [text, setText] = useState(prefix);
  useEffect(() => setText(prefix), [prefix]);
  useEffect(() => { // the address follows the typing, without an entry in the history for each letter
    if (text === prefix) return undefined;
    const timer = setTimeout(() => go(link(['resources'], {prefix: text, order, flat}), {replace: true}), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const choose = (value) => go(link(['resources'], {prefix: text, ...(value === 'contended' ? {order: value} : value === 'flat' ? {flat: 'true'} : {})}));
  return html`<form class="filters" role="search" onSubmit=${(e) => e.preventDefault()}>
    <label>Names begin with <input id="search" type="search" maxlength="1024" autocomplete="off" spellcheck=${false} value=${text} onInput=${(e) => setText(e.target.value)} /></label>
    <label>Show <select value=${order || (flat === 'true' ? 'flat' : 'tree')} onChange=${(e) => choose(e.target.value)}>
      <option value="tree">by name, as a tree</option><option value="flat">by name, as a list</option><option value="contended">the longest lines first</option>
    </select></label>
  </form>`;
}

/** Trail links to each parent folder. */
function Trail({prefix, query}) {
  const ends = [];
  for (let i = prefix.indexOf('/'); i >= 0; i = prefix.indexOf('/', i + 1)) ends.push(i + 1);
  if (ends.at(-1) !== prefix.length) ends.push(prefix.length);
  return html`<nav aria-label="Folders"><a href=${link(['resources'], {...query, prefix: ''})}>all</a>${ends.map((end, i) => html` › <a href=${link(['resources'], {...query, prefix: prefix.slice(0, end)})}
    aria-current=${end === prefix.length ? 'true' : undefined}><bdi>${visible(prefix.slice(ends[i - 1] ?? 0, end))}</bdi></a>`)}</nav>`;
}
