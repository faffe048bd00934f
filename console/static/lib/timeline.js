// The history of a resource: who waited and who held it, one line for each claim.
import {serverNow} from './api.js';
import {html} from './html.js';
import {Age, exact} from './time.js';
import {ClaimLink, Status, Text, Who} from './ui.js';

/** Timeline shows claims, the newest first. */
export function Timeline({claims}) {
  const now = serverNow();
  const begin = Math.min(...claims.map((claim) => Date.parse(claim.created)));
  const span = Math.max(now - begin, 1000);
  const share = (time) => Math.max(0, Math.min(100, (time - begin) / span * 100));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="History"><table class="timeline">
    <thead><tr><th scope="col">Claim of</th><th scope="col">Became</th><th scope="col">When</th><th scope="col" class="wide">From ${exact(begin)} until now</th><th scope="col">Why</th></tr></thead>
    <tbody>${claims.map((claim) => html`<tr key=${claim.id}>
      <td><${ClaimLink} id=${claim.id}><${Who} claim=${claim} /><//></td>
      <td><${Status} value=${claim.status} /></td>
      <td><${Age} since=${claim.status_history.at(-1)?.timestamp ?? claim.created} /> ago</td>
      <td class="wide"><svg class="bar" width="100%" height="16" role="img" aria-label=${described(claim)}>
        ${spans(claim, now).map(({status, from, to}) => html`<rect key=${status} class=${status} x=${`${share(from)}%`} width=${`${Math.max(0.3, share(to) - share(from))}%`} y="2" height="12"><title>${described(claim)}</title></rect>`)}
      </svg></td>
      <td>${(claim.reason || claim.ended_by) && html`<${Text} value=${claim.reason} none="" /> ${claim.ended_by && html`<span class="quiet">by <${Text} value=${claim.ended_by} /></span>`}`}</td>
    </tr>`)}</tbody></table></div>`;
}

// spans returns when a claim waited and when it held: start and end of each.
function spans(claim, now) {
  return claim.status_history.map((change, i) => ({
    status: change.status, from: Date.parse(change.timestamp),
    to: claim.status_history[i + 1] ? Date.parse(claim.status_history[i + 1].timestamp) : now,
  })).filter(({status}) => status === 'waiting' || status === 'active');
}

const described = (claim) => claim.status_history.map((change) => `${change.status} ${exact(change.timestamp)}`).join('; ');
