// The feed of changes, /v1/events, read with fetch, which unlike EventSource can send a credential. After a break it
// reconnects and resumes after the last event.

import {orAborted} from './abort.js';

/** A connection without a byte for this many milliseconds is dead; the server sends a comment every 15 s. */
const silence = 40_000;
const longestPause = 10_000;

/**
 * follow reads the feed until signal is aborted. listener has the functions
 *   live(): the stream is open, and all earlier changes have been received;
 *   lost(error): the stream has broken, and is opened again;
 *   reset(): changes were missed;
 *   transition(change): a claim has changed;
 *   refusals(count): the number of requests refused in the last second;
 *   refused(status, message): the caller may not watch; the feed has ended.
 * Any other answer may come from a proxy, or from a server that restarts: the request is repeated.
 */
export async function follow(url, headers, signal, listener) {
  let cursor = null, pause = 500;
  while (!signal.aborted) {
    const watchdog = new AbortController();
    const stop = () => watchdog.abort();
    signal.addEventListener('abort', stop);
    try {
      const asked = {...headers, Accept: 'text/event-stream', ...(cursor ? {'Last-Event-ID': cursor} : {})};
      const options = {headers: asked, signal: watchdog.signal, credentials: 'same-origin', cache: 'no-store', redirect: 'error'};
      const response = await within(watchdog, fetch(url, options));
      if ([401, 403].includes(response.status)) {
        listener.refused(response.status, await reason(watchdog, response));
        return;
      }
      if (response.status === 400 && cursor) { // a server of another version does not know the cursor
        cursor = null;
        listener.reset();
      }
      if (!response.ok) throw new Error(await reason(watchdog, response));
      pause = 500;
      listener.live();
      await read(response.body, watchdog, (event) => {
        if (event.id) cursor = event.id;
        if (event.name === 'reset') listener.reset();
        if (event.name === 'transition') listener.transition(event.data);
        if (event.name === 'refusals') listener.refusals(event.data.count);
        if (event.name === 'end') throw new Error(event.data.message ?? 'the server ended the stream');
      });
      throw new Error('the server ended the stream');
    } catch (error) {
      if (signal.aborted) return;
      listener.lost(error.name === 'AbortError' ? 'the connection was silent' : error.message);
    } finally {
      signal.removeEventListener('abort', stop);
      watchdog.abort();
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, longestPause);
  }
}

async function reason(watchdog, response) {
  try { return (await within(watchdog, response.json())).message ?? `the server answered ${response.status}`; } catch { return `the server answered ${response.status}`; }
}

/** within waits for a promise until watchdog is aborted, which happens after silence. */
function within(watchdog, promise) {
  const timer = setTimeout(() => watchdog.abort(), silence);
  return orAborted(watchdog.signal, promise).finally(() => clearTimeout(timer));
}

async function read(body, watchdog, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parse = parser(onEvent);
  try {
    for (;;) {
      const {value, done} = await within(watchdog, reader.read());
      if (done) return;
      parse(value);
    }
  } finally {
    reader.cancel().catch(() => {}); // nothing else closes the connection if the signal does not
  }
}

/** parser returns a function that accepts text in pieces, and calls onEvent({id, name, data}) for each event. */
export function parser(onEvent) {
  let rest = '', event = {};
  return (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (event.id || event.name) onEvent(event);
        event = {};
      } else if (line.startsWith('id: ')) event.id = line.slice(4);
      else if (line.startsWith('event: ')) event.name = line.slice(7);
      else if (line.startsWith('data: ')) event.data = JSON.parse(line.slice(6));
    }
  };
}
