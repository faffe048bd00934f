// The hub reads the feed once for all pages: in a SharedWorker (worker.js) for all tabs of the browser, or, where
// there is none, in the page itself. Pages and hub exchange messages.
//
// A page sends
//   {type: 'hello', url}                      first
//   {type: 'credential', credential}          a bearer credential, or null: none, or a cookie has changed
//   {type: 'bye'}                             last
// and gets
//   {type: 'credential', credential, changed} the one to use, also if another tab has sent it; changed: just now
//   {type: 'state', state, since, reason}     connecting, live, lost, or refused; since when, in milliseconds
//   {type: 'changes', names, transitions}     which resources changed since the last message (null: any may have),
//                                             and the first transitions
//   {type: 'rates', seconds}                  what happened in each of the last seconds, the oldest first

import {authorization} from './api.js';
import {follow} from './feed.js';

const flushInterval = 200;
/** The maximum of one message, so that a busy service does not overload a page. */
const mostNames = 1000, mostTransitions = 500;
/** How many seconds the rates are kept. */
export const keptSeconds = 300;

/** createHub returns a function that connects a page: its argument sends a message to the page, its result receives one from it. */
export function createHub() {
  const pages = new Set();
  let credential = null, url = null, feed = null;
  let state = {type: 'state', state: 'connecting', since: Date.now(), reason: ''};
  let names = new Set(), transitions = [], flushing = null;
  let seconds = [], ticking = null;

  const tell = (message) => { for (const send of pages) send(message); };

  function enter(next, reason = '') {
    if (state.state !== next || state.reason !== reason) {
      state = {type: 'state', state: next, since: state.state === next ? state.since : Date.now(), reason};
      tell(state);
    }
  }

  function changed(name, transition) {
    if (name === null || names === null || names.size >= mostNames) names = null;
    else names.add(name);
    if (transition && transitions.length < mostTransitions) transitions.push(transition);
    flushing ??= setTimeout(() => {
      tell({type: 'changes', names: names && [...names], transitions});
      names = new Set(); transitions = []; flushing = null;
    }, flushInterval);
  }

  function count(transition) {
    const second = seconds.at(-1);
    if (!second) return;
    const {before, claim} = transition;
    if (claim.status === before) return; // only its value has changed
    if (claim.status === 'active') second[before === 'waiting' ? 'handoffs' : 'grants']++;
    else if (claim.status === 'expired') second.expiries++;
    else if (claim.status === 'aborted') second.aborted++;
  }

  function tick() {
    seconds.push({at: Math.floor(Date.now() / 1000), grants: 0, handoffs: 0, expiries: 0, aborted: 0, refusals: 0});
    if (seconds.length > keptSeconds) seconds = seconds.slice(-keptSeconds);
    tell({type: 'rates', seconds: seconds.slice(0, -1)});
  }

  function begin() {
    feed?.abort();
    feed = new AbortController();
    const mine = feed;
    const during = (act) => (...values) => { if (mine === feed) act(...values); };
    enter('connecting');
    follow(url, authorization(credential), mine.signal, {
      live: during(() => { enter('live'); changed(null); }),
      lost: during((reason) => enter('lost', reason)),
      reset: during(() => changed(null)),
      transition: during((transition) => { count(transition); changed(transition.claim.resource, transition); }),
      refusals: during((count) => { if (seconds.length > 0) seconds.at(-1).refusals += count; }),
      refused: during((status, reason) => { enter('refused', reason); }),
    });
  }

  function end() {
    feed?.abort();
    feed = null;
    clearInterval(ticking);
    ticking = null;
  }

  return function connect(send) {
    return (message) => {
      if (message.type === 'hello') {
        pages.add(send);
        url = message.url;
        if (!ticking) { ticking = setInterval(tick, 1000); tick(); }
        send({type: 'credential', credential});
        if (!feed || state.state === 'refused') begin();
        send(state);
        send({type: 'rates', seconds: seconds.slice(0, -1)});
      } else if (message.type === 'credential') {
        credential = message.credential;
        tell({type: 'credential', credential, changed: true});
        begin();
      } else if (message.type === 'bye') {
        pages.delete(send);
        if (pages.size === 0) end();
      }
    };
  };
}
