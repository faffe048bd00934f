// The history of a resource: who waited and who held it, one line for each claim.
import {serverNow} from './api.js';
import {html} from './html.js';
import {Age, changedAt, exact, HeldFor, When} from './time.js';
import {ClaimLink, Status, Table, Text, Who} from './ui.js';

/** Timeline shows claims, the newest first. If there are many, consecutive claims that ended alike share a line. */
export function Timeline({claims}) {
  const now = serverNow();
  const groups = grouped(claims);
  const begin = Math.min(...claims.map((claim) => Date.parse(claim.created)));
  const span = Math.max(now - begin, 1000);
  const share = (time) => Math.max(0, Math.min(100, (time - begin) / span * 100));
  const bar = (group) => html`<svg class="bar" width="100%" height="16" role="img" aria-label=${group.map(described).join(', ')}>
    ${group.flatMap((claim) => spans(claim, now).map(({status, from, to}) => html`<rect key=${claim.id + status} class=${status} x=${`${share(from)}%`} width=${`${Math.max(0.3, share(to) - share(from))}%`} y="2" height="12"><title>${described(claim)}</title></rect>`))}
  </svg>`;
  return html`<${Table} label="History" name="timeline" rows=${groups} keyOf=${([claim]) => claim.id} columns=${[
    {title: 'Claim of', cell: ([claim, ...more]) => html`<${ClaimLink} id=${claim.id}><${Who} claim=${claim} /><//>${more.length > 0 && html` <span class="number">×${more.length + 1}</span>`}`},
    {title: 'Status', cell: ([claim]) => html`<${Status} value=${claim.status} />`},
    {title: 'Held', number: true, cell: ([claim]) => html`<${HeldFor} claim=${claim} />`},
    {title: 'Last change', cell: ([claim]) => html`<${When} at=${changedAt(claim)} />`},
    {title: html`The last <${Age} since=${new Date(begin).toISOString()} />`, wide: true, cell: bar},
    {title: 'Why', cell: ([claim]) => (claim.reason || claim.ended_by) && html`<${Text} value=${claim.reason} none="" /> ${claim.ended_by && html`<span class="quiet">by <${Text} value=${claim.ended_by} /></span>`}`},
  ]} />`;
}

/** More claims than these are grouped. */
const mostLines = 10;

// grouped returns claims in groups that differ in nothing but their times.
function grouped(claims) {
  const groups = [];
  const alike = (a, b) => ['owner', 'identity', 'status', 'reason', 'ended_by'].every((field) => a[field] === b[field]);
  for (const claim of claims) {
    const last = groups.at(-1);
    if (claims.length > mostLines && last && claim.status !== 'active' && alike(last[0], claim)) last.push(claim);
    else groups.push([claim]);
  }
  return groups;
}

// spans returns when a claim waited and when it held: start and end of each.
function spans(claim, now) {
  return claim.status_history.map((change, i) => ({
    status: change.status, from: Date.parse(change.timestamp),
    to: claim.status_history[i + 1] ? Date.parse(claim.status_history[i + 1].timestamp) : now,
  })).filter(({status}) => status === 'waiting' || status === 'active');
}

const described = (claim) => claim.status_history.map((change) => `${change.status} ${exact(change.timestamp)}`).join('; ');
