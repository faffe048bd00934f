// Finds deadlocks in the waits that GetQueue returns.
import {html} from './html.js';
import {ResourceLink, Text, visible} from './ui.js';

const partyOf = (claim) => claim.owner ?? claim.session ?? claim.claim ?? claim.id;

/**
 * deadlockOf returns the members of a deadlock, each waiting for the next and the last for the first, or null:
 * {party, resource, claim}. queue is the queue of a resource.
 */
export function deadlockOf(queue) {
  const edges = new Map(); // by the waiting party
  const add = (waiter, resource, claim, others) => {
    const key = partyOf(waiter);
    if (!edges.has(key)) edges.set(key, []);
    for (const other of others) if (partyOf(other) !== key) edges.get(key).push({to: partyOf(other), resource, claim});
  };
  for (const waiter of queue.waiters.slice(0, 32)) add(waiter, queue.resource, waiter.id, queue.holders);
  for (const wait of queue.waits) add(wait.waiter, wait.resource, wait.waiter.claim, [...wait.holders, ...wait.ahead]);
  const done = new Set();
  const search = (party, trail) => {
    const from = trail.findIndex((member) => member.party === party);
    if (from >= 0) return trail.slice(from);
    if (done.has(party)) return null;
    done.add(party);
    for (const {to, resource, claim} of edges.get(party) ?? []) {
      const found = search(to, [...trail, {party, resource, claim}]);
      if (found) return found;
    }
    return null;
  };
  for (const party of edges.keys()) {
    const found = search(party, []);
    if (found) return found;
  }
  return null;
}

/** Deadlock shows a deadlock. */
export function Deadlock({members}) {
  const at = (i, radius = 90) => {
    const angle = 2 * Math.PI * i / members.length - Math.PI / 2;
    return {x: 220 + 1.6 * radius * Math.cos(angle), y: 130 + radius * Math.sin(angle)};
  };
  const short = (text) => (text.length > 24 ? `${visible(text).slice(0, 23)}…` : visible(text));
  return html`<section class="problem deadlock" aria-labelledby="deadlock"><h2 id="deadlock">Deadlock</h2>
    <p>Each of these waits for the next, and the last for the first: none is ever granted unless one ends.</p>
    <svg viewBox="0 0 440 260" aria-hidden="true">
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" class="arrow" /></marker></defs>
      ${members.map((member, i) => {
        const a = at(i), b = at(i + 1), part = 0.72;
        return html`<g key=${member.party}>
          <line class="arrow" x1=${a.x + (b.x - a.x) * (1 - part)} y1=${a.y + (b.y - a.y) * (1 - part)} x2=${a.x + (b.x - a.x) * part} y2=${a.y + (b.y - a.y) * part} marker-end="url(#head)" />
          <text x=${a.x} y=${a.y} text-anchor="middle">${short(member.party)}</text></g>`;
      })}
    </svg>
    <ol>${members.map((member, i) => html`<li key=${member.party}><${Text} value=${member.party} /> waits for <${ResourceLink} name=${member.resource} />, behind <${Text} value=${members[(i + 1) % members.length].party} /></li>`)}</ol>
  </section>`;
}
