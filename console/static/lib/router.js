// Addresses within the page: the part after the #, so that the server and proxies see no names, and the page works at
// any prefix. #/resources/NAME?filter=x has the path ['resources', NAME] and the query {filter: 'x'}.
import {useEffect, useState} from './html.js';

/** link returns the address of a page. */
export function link(path, query = {}) {
  const parameters = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== ''));
  const text = parameters.toString();
  return '#/' + path.map((segment) => encodeURIComponent(segment)).join('/') + (text ? '?' + text : '');
}

/** go opens an address; with replace it replaces the current one in the browser's history. */
export function go(hash, {replace = false} = {}) {
  if (replace) history.replaceState(null, '', hash);
  else history.pushState(null, '', hash);
  dispatchEvent(new Event('hashchange'));
}

function current() {
  const [path, query] = location.hash.replace(/^#?\/?/, '').split('?', 2);
  return {path: path.split('/').filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(query ?? ''))};
}

function decode(segment) {
  try { return decodeURIComponent(segment); } catch { return segment; }
}

/** useRoute returns the path and the query of the address. */
export function useRoute() {
  const [route, set] = useState(current);
  useEffect(() => {
    const changed = () => set(current());
    addEventListener('hashchange', changed);
    addEventListener('popstate', changed);
    return () => { removeEventListener('hashchange', changed); removeEventListener('popstate', changed); };
  }, []);
  return route;
}
