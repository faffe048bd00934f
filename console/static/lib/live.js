// The page's connection to the hub, and the hooks that give components its messages.
import {address, call, setCredential} from './api.js';
import {createHub} from './hub.js';
import {useEffect, useRef, useState} from './html.js';

const listeners = new Map(); // by the type of the message
const latest = new Map();
let toHub = () => {};

/** publish delivers a message to the listeners, as if it came from the hub. */
export function publish(message) {
  if (message.type === 'credential') {
    setCredential(message.credential);
    if (!message.changed && (latest.get('credential')?.credential ?? null) === message.credential) return;
  }
  latest.set(message.type, message);
  for (const listener of [...(listeners.get(message.type) ?? [])]) listener(message);
}

/** connectHub connects to the hub, and so to the feed. */
export function connectHub() {
  try {
    const worker = new SharedWorker(new URL('../worker.js', import.meta.url), {type: 'module', name: 'locket'});
    worker.port.onmessage = ({data}) => publish(data);
    worker.onerror = () => connectHere();
    toHub = (message) => worker.port.postMessage(message);
  } catch {
    connectHere();
    return;
  }
  hello();
  addEventListener('pagehide', () => toHub({type: 'bye'}));
  addEventListener('pageshow', ({persisted}) => { if (persisted) hello(); });
}

function connectHere() {
  toHub = createHub()(publish);
  hello();
}

function hello() { toHub({type: 'hello', url: address('v1/events/', {no_snapshot: 'true', refusals: 'true'}).href}); }

/** signIn sets the bearer credential of this page and of the other tabs; null: none, or the credential of a cookie. */
export function signIn(credential) {
  setCredential(credential);
  toHub({type: 'credential', credential});
}

/** listen calls a function with each message of a type, and returns a function that ends that. */
export function listen(type, listener) {
  if (!listeners.has(type)) listeners.set(type, new Set());
  listeners.get(type).add(listener);
  return () => listeners.get(type).delete(listener);
}

/** useMessage returns the last message of a type, or undefined. */
export function useMessage(type) {
  const [message, set] = useState(latest.get(type));
  useEffect(() => { set(latest.get(type)); return listen(type, set); }, [type]);
  return message;
}

/** useTransitions calls a function with each transition. */
export function useTransitions(onTransition) {
  const current = useRef();
  current.current = onTransition;
  useEffect(() => listen('changes', ({transitions}) => transitions.forEach((t) => current.current(t))), []);
}

/**
 * useQuery reads from the API, once, and again when a change in the feed may affect the answer: at most once in `pace`
 * milliseconds, and only while the page is visible. Without changes it sends no requests.
 *
 * concerns(name) returns whether the answer depends on a resource. A path of null sends no request. The result has
 *   data, next: the last answer; at: its time; error: why there is no newer one; loading; reload().
 */
export function useQuery(path, query, {concerns = () => true, pace = 1000} = {}) {
  const key = path === null ? null : path + '?' + JSON.stringify(query ?? {});
  const [result, setResult] = useState({key});
  const control = useRef({});
  control.current.concerns = concerns;
  useEffect(() => {
    if (key === null) return undefined;
    const abort = new AbortController();
    let underway = false, stale = false, last = 0, timer = null;
    const ask = async () => {
      timer = null;
      if (underway || document.hidden) { stale = true; return; }
      underway = true; stale = false; last = Date.now();
      try {
        const {value, next, etag} = await call('GET', path, {query, signal: abort.signal});
        setResult({key, data: value, next, etag, at: Date.now()});
      } catch (error) {
        if (abort.signal.aborted) return;
        setResult((known) => ({...(known.key === key && keeps(error) ? known : {}), key, error}));
        if (error.status === 401) expired(error);
        else if (error.again) setTimeout(soon, error.again * 1000);
      } finally { underway = false; }
      if (stale) soon();
    };
    const soon = () => {
      if (abort.signal.aborted) return;
      timer ??= setTimeout(ask, Math.max(0, last + pace - Date.now()));
    };
    control.current.reload = soon;
    const ends = [
      listen('changes', ({names}) => { if (names === null || names.some((name) => control.current.concerns(name))) soon(); }),
      listen('credential', soon),
    ];
    const seen = () => { if (!document.hidden && stale) soon(); };
    document.addEventListener('visibilitychange', seen);
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
      ends.forEach((end) => end());
      document.removeEventListener('visibilitychange', seen);
    };
  }, [key, pace]);
  const mine = result.key === key ? result : {};
  return {...mine, loading: key !== null && !mine.data && !mine.error, reload: () => control.current.reload?.()};
}

// The last answer stays on the page while the server is unavailable, but not if it is not found or not allowed.
const keeps = (error) => ![401, 403, 404].includes(error.status);

function expired(error) { publish({type: 'unauthenticated', message: error.message}); }
