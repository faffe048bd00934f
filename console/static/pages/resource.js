// A resource: its holders and waiters, whether it is in a deadlock, and the actions on its claims.
import {Deadlock, deadlockOf} from '../lib/deadlock.js';
import {EndClaim, useMayEnd} from '../lib/end.js';
import {html, useMemo} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {link} from '../lib/router.js';
import {Age, Left} from '../lib/time.js';
import {Timeline} from '../lib/timeline.js';
import {ClaimLink, Copy, Loading, numeral, ResourceLink, Rows, Text, Verdict, Who} from '../lib/ui.js';

export const title = ([, name]) => name;

/** The maximum number of waiters in one answer. */
const mostWaiters = 1000;

/** The history has no waiting claims: these are in the queue. */
const heldOrEnded = 'active,released,expired,aborted,withdrawn,revoked';

export function Resource({path: [, name]}) {
  const concerns = (changed) => changed === name;
  const queue = useQuery('v1/resources/', {name, limit: mostWaiters}, {concerns});
  const history = useQuery('v1/claims/', {resource: name, status: heldOrEnded, order: 'newest', limit: 50}, {concerns, pace: 2000});
  const refusal = useMayEnd(name);
  const q = queue.data;
  const deadlock = useMemo(() => q && deadlockOf(q), [q]);
  const next = q?.waiters[0];
  return html`
    <p><a href=${link(['resources'])}>Resources</a></p>
    <h1><${Text} value=${name} /> <${Copy} value=${name} what="the name" /></h1>
    <${Loading} of=${queue} />
    ${q && html`
      <p class="state"><${Verdict} of=${queue}>${state(q)}<//></p>
      ${deadlock && html`<${Deadlock} members=${deadlock} />`}
      <section aria-labelledby="holders"><h2 id="holders">${q.holders.length > 1 ? `${numeral(q.holders.length)} hold it, shared` : 'Holder'}</h2>
        ${q.holders.length === 0 && html`<p><${Verdict} of=${queue}>Nobody.<//></p>`}
        ${q.holders.map((claim) => html`<article class="holder" key=${claim.id} aria-label="Holder">
          <p class="actions"><${EndClaim} claim=${claim} resource=${name} next=${next} nextIsKnown=${q.holders.length === 1} refused=${refusal(claim)} /></p>
          <dl>
            <div><dt>Owner</dt><dd><${Who} claim=${claim} /></dd></div>
            ${claim.value && html`<div><dt>Value</dt><dd><${Text} value=${claim.value} /></dd></div>`}
            ${claim.identity && html`<div><dt>Identity</dt><dd><${Text} value=${claim.identity} /></dd></div>`}
            <div><dt>Held for</dt><dd><${Age} since=${claim.since} /></dd></div>
            <div><dt>Time left</dt><dd>${claim.ttl === null ? 'as long as its session' : html`<${Left} seconds=${claim.ttl} at=${queue.at} onEnd=${queue.reload} /> <span class="quiet">unless it is renewed</span>`}</dd></div>
            <div><dt>Mode</dt><dd>${claim.mode}</dd></div>
            <div><dt>Fencing token</dt><dd><span class="number token">${claim.token}</span> <${Copy} value=${claim.token} what="the fencing token" /></dd></div>
            <div><dt>Claim</dt><dd><${ClaimLink} id=${claim.id} /></dd></div>
          </dl>
        </article>`)}
      </section>
      ${q.waits.length > 0 && html`<section aria-labelledby="waits"><h2 id="waits">The holder waits elsewhere</h2>
        <ul>${q.waits.map((wait) => html`<li key=${wait.waiter.claim}><${Who} claim=${wait.waiter} /> has waited for <${ResourceLink} name=${wait.resource} /> for <${Age} since=${wait.waiter.since} />,
          behind ${[...wait.holders, ...wait.ahead].map((claim, i) => html`${i > 0 ? ', ' : ''}<${ClaimLink} id=${claim.claim}><${Who} claim=${{id: claim.claim, ...claim}} /><//>`)}</li>`)}</ul>
      </section>`}
      <section aria-labelledby="line"><h2 id="line">Waiting: ${numeral(q.waiting)}</h2>
        ${q.waiting === 0 ? html`<p><${Verdict} of=${queue}>Nobody waits.<//></p>` : html`
          <${Rows} label="The line, in order" rows=${q.waiters} keyOf=${(claim) => claim.id} columns=${[
            {title: 'Place', number: true, cell: (claim) => html`<span class="number">${claim.position}</span>`},
            {title: 'Owner', wide: true, cell: (claim) => html`<${ClaimLink} id=${claim.id}><${Who} claim=${claim} /><//>`},
            {title: 'Waiting for', number: true, cell: (claim) => html`<${Age} since=${claim.since} />`},
            {title: 'Mode', cell: (claim) => claim.mode},
            {title: 'Action', cell: (claim) => (refusal(claim) === '' ? html`<${EndClaim} claim=${claim} resource=${name} refused="" />` : html`<span class="quiet">none</span>`)},
          ]} />
          ${refusal(next ?? {}) && html`<p class="quiet">Withdrawing claims of others: ${refusal({})}</p>`}
          ${q.waiting > q.waiters.length && html`<p>These are the first ${numeral(q.waiters.length)}. <a href=${link(['claims'], {resource: name, status: 'waiting'})}>All that wait</a></p>`}`}
      </section>`}
    <section aria-labelledby="history"><h2 id="history">History</h2>
      <${Loading} of=${history} />
      ${history.data && (history.data.length === 0 ? html`<p><${Verdict} of=${history}>No holder in the history.<//></p>` : html`<${Timeline} claims=${history.data} />`)}
      <p><a href=${link(['claims'], {resource: name, status: 'any'})}>All its claims</a></p>
    </section>`;
}

function state(q) {
  if (q.holders.length === 0) return 'It is free.';
  const waits = q.waiting === 0 ? 'Nobody waits.' : q.waiting === 1 ? 'One claim waits.' : `${numeral(q.waiting)} claims wait.`;
  return html`Held for <${Age} since=${q.holders[0].since} /> by <strong><${Who} claim=${q.holders[0]} /></strong>${q.holders.length > 1 ? ` and ${numeral(q.holders.length - 1)} more` : ''}. ${waits}`;
}
