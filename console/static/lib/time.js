// Times: how long ago, and when exactly, locally and in UTC.
import {serverNow} from './api.js';
import {html, useEffect, useState} from './html.js';

/** duration says how long so many seconds are, in at most two units. */
export function duration(seconds) {
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

/** exact returns a time locally and in UTC. */
export function exact(timestamp) {
  const date = new Date(timestamp);
  return `${local.format(date)} local, ${date.toISOString().replace('T', ' ').slice(0, 19)} UTC`;
}

/** secondsSince returns for how many seconds something has been so. */
export const secondsSince = (timestamp) => (serverNow() - Date.parse(timestamp)) / 1000;

/** Age shows for how long something has been so, as it grows; the exact time stands in its title. */
export function Age({since}) {
  useTick();
  return html`<time class="number" datetime=${since} title=${exact(since)}>${duration(secondsSince(since))}</time>`;
}

/** When shows a time exactly, and how long ago it was. */
export function When({at}) {
  return html`<span class="when"><${Age} since=${at} /> ago <span class="quiet">(${exact(at)})</span></span>`;
}

/**
 * Left shows how much time was left at a moment, as it runs. A holder that renews gets more: when the time has run
 * out, onEnd is called once, to look again.
 */
export function Left({seconds, at, onEnd}) {
  useTick();
  const left = seconds - (Date.now() - at) / 1000;
  useEffect(() => { if (left <= 0) onEnd?.(); }, [left <= 0, at]);
  return html`<span class="number">${left > 0 ? duration(Math.ceil(left)) : '0 s'}</span>`;
}
