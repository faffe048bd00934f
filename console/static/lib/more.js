// The further pages of a list. useQuery keeps the first one live.
import {call} from './api.js';
import {html, useEffect, useRef, useState} from './html.js';
import {numeral, Problem} from './ui.js';

/** useMore loads the pages after the first. They are not updated. */
export function useMore(first, path, query) {
  const key = JSON.stringify(query);
  const [state, setState] = useState({rows: [], key});
  const busy = useRef(null);
  const mine = state.key === key ? state : {rows: [], key};
  useEffect(() => () => { busy.current = null; }, [key]);
  const next = mine.started ? mine.next : first.next;
  const load = async () => {
    if (!next || busy.current) return;
    const turn = busy.current = {};
    try {
      const page = await call('GET', path, {query: {...query, page_token: next}});
      if (busy.current === turn) setState({key, rows: [...mine.rows, ...page.value], next: page.next, started: true});
    } catch (error) {
      if (busy.current === turn) setState({...mine, error, next, started: true});
    } finally { if (busy.current === turn) busy.current = null; }
  };
  return {...mine, next, load};
}

/** More shows how much of a list is loaded, and loads more of it. */
export function More({count, what, first, more}) {
  return html`<p class="quiet">${numeral(count)} ${count === 1 ? `${what.slice(0, -1)} is` : `${what} are`} loaded${more.rows.length > 0 ? `: the first ${numeral(first.data.length)} as they are now, the others as they were when they were loaded` : ''}.
    ${more.next && html` <button type="button" class="small" onClick=${more.load}>Load more</button>`}</p>
    <${Problem} error=${more.error} />`;
}

/** distinct leaves out items with a repeated key. */
export function distinct(rows, keyOf) {
  const known = new Set();
  return rows.filter((row) => !known.has(keyOf(row)) && known.add(keyOf(row)));
}
