// Requests to the REST API of the server that the page is from.
//
// A pasted credential is kept only in memory, here and in the SharedWorker: never in a URL, in the browser's storage or
// in a log. It is sent in the header Authorization.

import {orAborted} from './abort.js';

let credential = null;

/** setCredential sets the bearer credential of all further requests; null: none. */
export function setCredential(bearer) { credential = bearer; }

/** authorization returns the headers with the credential. */
export function authorization(bearer = credential) {
  return bearer ? {Authorization: `Bearer ${bearer}`} : {};
}

/** ApiError is an answer other than success; status is 0 if there was none. */
export class ApiError extends Error {
  constructor(status, body, header) {
    super(messageOf(status, body));
    this.status = status;
    this.body = body;
    const seconds = Number(header?.get('Retry-After')) || 0;
    /** After how many seconds to ask again; 0: not before something has changed. */
    this.again = [429, 503].includes(status) ? Math.max(seconds, 1) : [0, 502, 504].includes(status) ? 5 : 0;
  }
}

function messageOf(status, body) {
  if (body && typeof body === 'object') {
    if (body.message) return String(body.message);
    return Object.entries(body).map(([name, problem]) => `${name}: ${problem}`).join('; ');
  }
  return status ? `the server answered ${status}` : 'the server cannot be reached';
}

/** The URL of a path of the API, like v1/claims/. It is relative, so that it works behind a proxy's prefix. */
export function address(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== '') parameters.set(name, value);
  }
  const text = parameters.toString();
  return new URL('../' + path + (text ? '?' + text : ''), document.baseURI);
}

/** ahead is how far the server's clock is ahead of the browser's, in milliseconds. */
let ahead = 0;

/** serverNow is the time by the server's clock, in milliseconds. */
export function serverNow() { return Date.now() + ahead; }

// The header Date has whole seconds: smaller differences are ignored.
function readClock(header, began) {
  const date = Date.parse(header.get('Date') ?? '');
  if (Number.isNaN(date)) return;
  const difference = date + 500 - (began + Date.now()) / 2;
  ahead = Math.abs(difference) > 2000 ? difference : 0;
}

/** A request is given up after this many milliseconds; the server takes a minute at most. */
const longest = 70_000;

/**
 * call sends a request, and returns the body of the answer and the token of the next page, if there is one.
 * It throws an ApiError, also if there is no answer, and another error if signal is aborted.
 */
export async function call(method, path, {query, body, header, signal} = {}) {
  const began = Date.now();
  const watchdog = new AbortController();
  const stop = () => watchdog.abort();
  if (signal?.aborted) stop();
  signal?.addEventListener('abort', stop);
  const timer = setTimeout(stop, longest);
  let response, text;
  try {
    response = await orAborted(watchdog.signal, fetch(address(path, query), {
      method, signal: watchdog.signal, credentials: 'same-origin', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
      headers: {...(body === undefined ? {} : {'Content-Type': 'application/json'}), ...authorization(), ...header},
      body: body === undefined ? undefined : JSON.stringify(body),
    }));
    readClock(response.headers, began);
    text = await orAborted(watchdog.signal, response.text());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { value = {message: `not from Locket: ${text.slice(0, 200)}`}; }
  if (!response.ok) throw new ApiError(response.status, value, response.headers);
  return {value, next: nextToken(response.headers.get('Link')), etag: response.headers.get('ETag')};
}

/** get returns the body of an answer to GET. */
export async function get(path, query, signal) { return (await call('GET', path, {query, signal})).value; }

// Only the token of the next page's URL is used: a proxy may have changed the rest.
function nextToken(link) {
  const found = /<([^>]*)>;\s*rel="next"/.exec(link ?? '');
  return found ? new URL(found[1], document.baseURI).searchParams.get('page_token') : null;
}

/** The path of a claim, of a session. Names of resources are in the query, because browsers remove "." and ".." from a path. */
export const claimPath = (id) => `v1/claims/${encodeURIComponent(id)}/`;
export const sessionPath = (id) => `v1/sessions/${encodeURIComponent(id)}/`;
