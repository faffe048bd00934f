// Times: their age, and their exact value, in local time and in UTC.
import {serverNow} from './api.js';
import {html, useEffect, useState} from './html.js';

/** duration returns a number of seconds as text, in at most two units; less than a second in tenths. */
export function duration(seconds) {
  if (seconds > 0 && seconds < 0.95) return seconds < 0.1 ? '< 0.1 s' : `${seconds.toFixed(1)} s`;
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  if (s < 86400 * 365) return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
  return `${Math.floor(s / 86400 / 365)} y ${Math.floor(s / 86400 % 365)} d`;
}

// One timer for all ages on the page.
const watches = new Set();
setInterval(() => { for (const watch of watches) watch(); }, 1000);

function useTick() {
  const [, set] = useState(0);
  useEffect(() => {
    const watch = () => set((n) => n + 1);
    watches.add(watch);
    return () => watches.delete(watch);
  }, []);
}

const local = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'medium'});

/** exact returns a time in local time and in UTC. */
export function exact(timestamp) {
  const date = new Date(timestamp);
  return `${local.format(date)} local, ${date.toISOString().replace('T', ' ').slice(0, 19)} UTC`;
}

/** secondsSince returns the age of a time, in seconds. */
export const secondsSince = (timestamp) => (serverNow() - Date.parse(timestamp)) / 1000;

/** Age shows the age of a time, and updates it; its title has the exact time. */
export function Age({since}) {
  useTick();
  return html`<time class="number" datetime=${since} title=${exact(since)}>${duration(Math.floor(secondsSince(since)))}</time>`;
}

/** Lasting shows a duration that grows: it had this many seconds at a time of the browser's clock. */
export function Lasting({seconds, at}) {
  useTick();
  return html`<span class="number">${duration(Math.floor(seconds + (Date.now() - at) / 1000))}</span>`;
}

/** When shows how long ago a time was. */
export function When({at}) {
  return html`<span class="when"><${Age} since=${at} /> ago</span>`;
}

/** grantedAt is when a claim became active, undefined if it never did. */
export const grantedAt = (claim) => claim.status_history.find(({status}) => status === 'active')?.timestamp;

/** changedAt is when a claim got the status that it has. */
export const changedAt = (claim) => claim.status_history.at(-1)?.timestamp ?? claim.created;

/** HeldFor and WaitedFor show how long a claim has held, or held, and waited. */
export function HeldFor({claim}) {
  if (claim.status === 'active') return html`<${Age} since=${grantedAt(claim)} />`;
  return claim.active_duration === null ? null : html`<span class="number">${duration(claim.active_duration)}</span>`;
}
export function WaitedFor({claim}) {
  if (claim.status === 'waiting') return html`<${Age} since=${claim.created} />`;
  return html`<span class="number">${duration(claim.waiting_duration)}</span>`;
}

/**
 * Left shows the time left, as a countdown. A holder that renews gets more: when the time is over, onEnd is called
 * once, to read it again.
 */
export function Left({seconds, at, onEnd}) {
  useTick();
  const left = seconds - (Date.now() - at) / 1000;
  useEffect(() => { if (left <= 0) onEnd?.(); }, [left <= 0, at]);
  return html`<span class="number">${left > 0 ? duration(Math.ceil(left)) : '0 s'}</span>`;
}
