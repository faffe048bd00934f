// Ending claims and sessions: whether the caller may, and the dialogs that explain the effect.
import {call, claimPath, sessionPath} from './api.js';
import {html, useState} from './html.js';
import {useMessage, useQuery} from './live.js';
import {Age} from './time.js';
import {announce, Ask, Text, Who} from './ui.js';

/** useRight returns whether the caller has a right on a resource; undefined until that is known. */
export function useRight(resource, right) {
  const {data} = useQuery(resource ? 'v1/permissions/' : null, {name: resource, right}, {concerns: () => false, pace: 5000});
  return data;
}

/**
 * useMayEnd returns why the caller may not end a claim of a resource: '' if it may, undefined until that is known.
 */
export function useMayEnd(resource) {
  const me = useMessage('me')?.identity;
  const revoke = useRight(resource, 'revoke');
  return (claim) => {
    if (!me || !revoke) return undefined;
    if (!me.authentication || revoke.allowed || (claim.identity && claim.identity === me.name)) return '';
    return revoke.line
      ? `You may not: it is not yours, and the rule in line ${revoke.line} refuses you the right revoke.`
      : 'You may not: it is not yours, and no rule gives you the right revoke here.';
  };
}

/** EndClaim is the button that revokes a holder or withdraws a waiter, with its dialog. */
export function EndClaim({claim, resource, next, nextIsKnown = true, refused}) {
  const [asking, setAsking] = useState(false);
  if (refused === undefined) return null;
  if (refused) return html`<span class="quiet refused">${refused}</span>`;
  const holds = claim.status === 'active';
  const act = async (reason) => {
    const status = holds ? 'revoked' : 'withdrawn';
    // A waiter may have become the holder meanwhile, which the dialog did not announce: If-Match prevents the change.
    const header = holds ? {} : {'If-Match': `"${claim.version}"`};
    try {
      await call('PATCH', claimPath(claim.id), {body: {status, ...(reason ? {reason} : {})}, header});
    } catch (error) {
      if (error.status === 412) error.message = 'The claim has changed: nothing was done. Close this and look again.';
      throw error;
    }
    announce(`The claim was ${status}.`);
  };
  return html`<button type="button" class="small danger" onClick=${() => setAsking(true)}>${holds ? 'Revoke…' : 'Withdraw…'}</button>
    ${asking && html`<${Ask} title=${holds ? 'Revoke this claim?' : 'Withdraw this claim?'} verb=${holds ? 'Revoke' : 'Withdraw'} withReason act=${act} onClose=${() => setAsking(false)}>
      <p>${holds ? html`<${Who} claim=${claim} /> has held <${Text} value=${resource} /> for <${Age} since=${claim.since} />, and loses it now.`
        : html`<${Who} claim=${claim} /> has waited for <${Text} value=${resource} /> for <${Age} since=${claim.since} />, and loses its place now.`}</p>
      ${holds && nextIsKnown && html`<p class="next">${next
        ? html`Next: <${Who} claim=${next} />, which has waited for <${Age} since=${next.since} />. It is granted at once.`
        : 'Nobody waits: the resource will be free.'}</p>`}
      ${holds && html`<p>The former holder may not know it yet. Its target is safe only if the target checks the fencing token.</p>`}
      <p>This cannot be undone.</p>
    <//>`}`;
}

/** EndSession is the button that ends a session, with its dialog. */
export function EndSession({session}) {
  const [asking, setAsking] = useState(false);
  const act = async () => {
    await call('DELETE', sessionPath(session.id));
    announce('The session was ended.');
  };
  return html`<button type="button" class="small danger" onClick=${() => setAsking(true)}>End…</button>
    ${asking && html`<${Ask} title="End this session?" verb="End the session" act=${act} onClose=${() => setAsking(false)}>
      <p><${Text} value=${session.owner} /> holds ${session.holding} and waits for ${session.waiting}: these claims are revoked, and those behind them are granted.</p>
      <p>Its client hears of it, and may open another one. This cannot be undone.</p>
    <//>`}`;
}

