// A claim: all that is known of it.
import {claimPath} from '../lib/api.js';
import {EndClaim, useMayEnd} from '../lib/end.js';
import {html} from '../lib/html.js';
import {useQuery} from '../lib/live.js';
import {link} from '../lib/router.js';
import {duration, HeldFor, Left, WaitedFor, When} from '../lib/time.js';
import {Copy, Loading, ResourceLink, SessionLink, Status, Text, visible} from '../lib/ui.js';

export const title = ([, id]) => `Claim ${id}`;

export function Claim({path: [, id]}) {
  const of = useQuery(claimPath(id), {}, {concerns: (name) => !of?.data || name === of.data.resource});
  const claim = of.data;
  const refusal = useMayEnd(claim?.resource);
  const live = claim && (claim.status === 'waiting' || claim.status === 'active');
  const row = (name, value) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`
    <p><a href=${link(['claims'])}>Claims</a></p>
    <h1>Claim <${Text} value=${id} /> <${Copy} value=${id} what="the id" /></h1>
    <${Loading} of=${of} />
    ${claim && html`<article class="holder"><dl>
      ${row('Status', html`<${Status} value=${claim.status} />`)}
      ${row('Resource', html`<${ResourceLink} name=${claim.resource} />`)}
      ${row('Owner', html`<${Text} value=${claim.owner} />`)}
      ${row('Identity', html`<${Text} value=${claim.identity} />`)}
      ${row('Mode', claim.mode)}
      ${row('Type', claim.type ?? 'lock')}
      ${claim.position !== null && row('Place in the queue', html`<span class="number">${claim.position}</span>`)}
      ${claim.token !== null && row('Fencing token', html`<span class="number token">${claim.token}</span> <${Copy} value=${claim.token} what="the fencing token" />`)}
      ${claim.ttl !== null && row('Time left', html`<${Left} seconds=${claim.ttl} at=${of.at} onEnd=${of.reload} /> <span class="quiet">unless it is renewed</span>`)}
      ${claim.session && row('Session', html`<${SessionLink} id=${claim.session} />`)}
      ${claim.wait_ttl !== null && row('Wait TTL', duration(claim.wait_ttl))}
      ${row(claim.status === 'waiting' ? 'Waiting for' : 'Waited for', html`<${WaitedFor} claim=${claim} />`)}
      ${claim.active_duration !== null && row('Held for', html`<${HeldFor} claim=${claim} />`)}
      ${claim.value && row('Value', html`<${Text} value=${claim.value} />`)}
      ${claim.user_data !== null && row('User data', html`<pre tabindex="0">${visible(JSON.stringify(claim.user_data, null, 2)).replaceAll('\\n', '\n')}</pre>`)}
      ${!live && row('Reason', html`<${Text} value=${claim.reason} />`)}
      ${!live && row('Ended by', html`<${Text} value=${claim.ended_by} none="not known" />`)}
      ${row('Version', html`<span class="number">${claim.version}</span>`)}
    </dl>
    ${live && html`<p class="actions"><${EndClaim} claim=${{...claim, since: claim.status_history.at(-1).timestamp}} resource=${claim.resource} nextIsKnown=${false} refused=${refusal(claim)} /></p>`}
    </article>
    <section aria-labelledby="history"><h2 id="history">History</h2>
      <ol>${claim.status_history.map((change, i) => html`<li key=${i}><${Status} value=${change.status} /> <${When} at=${change.timestamp} /></li>`)}</ol>
    </section>`}`;
}
