// The overview: the current activity, and what needs attention.
import {html, useEffect, useRef, useState} from '../lib/html.js';
import {useMessage, useQuery} from '../lib/live.js';
import {link} from '../lib/router.js';
import {Age, duration, Lasting, Left, When} from '../lib/time.js';
import {ClaimLink, Holder, Loading, numeral, ResourceLink, Table, Text, Verdict, Who} from '../lib/ui.js';

export const title = 'Overview';

const series = [
  {key: 'grants', label: 'grants'}, {key: 'handoffs', label: 'hand-offs'},
  {key: 'expiries', label: 'expiries'}, {key: 'aborted', label: 'aborted'}, {key: 'refusals', label: 'refusals'},
];

export function Overview() {
  const longest = useQuery('v1/resources/', {order: 'contended', limit: 10}, {pace: 5000});
  const {ending, within, soonest, full} = useEnding();
  const status = useQuery('v1/status/', {}, {concerns: () => false, pace: 5000});
  const lines = (longest.data ?? []).filter((r) => r.waiting > 0).sort((a, b) => b.oldest_wait - a.oldest_wait);
  return html`
    <h1>Overview</h1>
    <${Problems} of=${status} />
    <div class="columns">
      <section aria-labelledby="lines"><h2 id="lines">Longest waits</h2>
        <${Loading} of=${longest} />
        ${longest.data && (lines.length === 0 ? html`<p><${Verdict} of=${longest}>Nobody waits.<//></p>` : html`
          <${Table} label="Longest waits" rows=${lines} keyOf=${(r) => r.resource} columns=${[
            {title: 'Resource', cell: (r) => html`<${ResourceLink} name=${r.resource} />`},
            {title: 'Oldest wait', number: true, cell: (r) => html`<${Lasting} seconds=${r.oldest_wait} at=${longest.at} />`},
            {title: 'Waiting', number: true, cell: (r) => html`<span class="number">${numeral(r.waiting)}</span>`},
            {title: 'Held by', cell: (r) => html`<${Holder} claim=${r.holder} />`},
            {title: 'Held for', number: true, cell: (r) => r.holder && html`<${Age} since=${r.holder.since} />`},
          ]} /><p><a href=${link(['resources'])}>All resources, by contention</a></p>`)}
      </section>
      <section aria-labelledby="ending"><h2 id="ending">Not renewed on time</h2>
        <${Loading} of=${ending} />
        ${ending.data && (soonest.length === 0 ? html`<p><${Verdict} of=${ending}>Every lease that ends within ${within === 60 ? 'a minute' : duration(within)} was renewed on time.<//></p>` : html`
          <${Table} label="Not renewed on time" rows=${soonest} keyOf=${(c) => c.id} columns=${[
            {title: 'Resource', cell: (c) => html`<${ResourceLink} name=${c.resource} />`},
            {title: 'Held by', cell: (c) => html`<${ClaimLink} id=${c.id}><${Who} claim=${c} /><//>`},
            {title: 'Time left', number: true, cell: (c) => html`<${Left} seconds=${c.ttl} at=${ending.at} onEnd=${ending.reload} />`},
          ]} />`)}
        ${full && html`<p class="quiet">Only the oldest of very many that end within ${duration(within)} were looked at.</p>`}
        ${ending.data && html`<p><a href=${link(['claims'], {status: 'active', maximum_ttl: '60'})}>All that end within a minute</a></p>`}
      </section>
    </div>
    <${Totals} of=${status} />
    <${Rates} />
    <${Servers} of=${status} />`;
}

/** Totals shows the numbers of claims and sessions, to callers with the right to administer. */
function Totals({of}) {
  const n = of.data?.counts;
  if (!n) return null;
  const figure = (label, value) => html`<div><dt>${label}</dt><dd class="number">${numeral(value)}</dd></div>`;
  return html`<section aria-labelledby="totals"><h2 id="totals">Totals</h2>
    <dl class="figures">${figure('claims that hold', n.held)}${figure('claims that wait', n.waiting)}${figure('sessions', n.sessions)}</dl>
    <p class="quiet">Counted every 15 seconds.</p></section>`;
}

/** Problems shows the problems of the service, to callers with the right to administer. */
function Problems({of}) {
  const problems = of.data?.problems ?? [];
  if (of.error?.status === 403 || of.loading) return null;
  return html`<section aria-label="Problems">${problems.length > 0 ? html`<ul class="problem">${problems.map((p) => html`<li key=${p}>${p}</li>`)}</ul>`
    : html`<p><${Verdict} of=${of}>No problem is known.<//></p>`}</section>`;
}

/** How many claims are searched for the ones closest to their end, and how many of these are shown. */
export const mostEnding = 200;
const shownEnding = 10;

/** useEnding returns the claims that are closest to their end. */
function useEnding() {
  const [span, set] = useState({within: 60});
  const {within} = span;
  const ending = useQuery('v1/claims/', {status: 'active', maximum_ttl: within, limit: mostEnding}, {pace: 5000});
  const soonest = endingOf(ending.data ?? []).sort((a, b) => a.ttl - b.ttl).slice(0, shownEnding);
  const then = ending.data ? nextSpan(span, ending.data, Boolean(ending.next)) : span;
  useEffect(() => { set(then); }, [ending.at]);
  return {ending, within, soonest, full: Boolean(ending.next) && then.within >= within};
}

/** Clients renew when a third of a TTL has passed. A lease with less than half of it left was not renewed on time, or is never renewed. */
const endingOf = (claims, seconds = Infinity) => claims.filter((c) => c.ttl !== null && c.ttl <= seconds && c.ttl < c.granted_ttl / 2);

/**
 * nextSpan returns the span for the next query of claims that end within it. Lists are ordered by creation, so if more claims match than
 * fit on a page, the span is halved. If too few of them end, it is doubled. A span that was doubled is settled: it is halved again only if
 * enough claims end in its first half.
 */
export function nextSpan({within, settled}, claims, full) {
  if (!full) return endingOf(claims).length < shownEnding && within < 60 ? {within: within * 2, settled: true} : {within};
  const stays = within <= 1 || settled && endingOf(claims, within / 2).length < shownEnding;
  return stays ? {within, settled} : {within: within / 2};
}

/** Rates shows the events of the last seconds, as a plot and in numbers. */
function Rates() {
  const seconds = useMessage('rates')?.seconds ?? [];
  const recent = seconds.slice(-60);
  const sum = (key) => recent.reduce((total, second) => total + second[key], 0);
  return html`<section aria-labelledby="rates"><h2 id="rates">Changes a second</h2>
    <${Plot} seconds=${seconds} />
    <dl class="figures">${series.map(({key, label}) => html`<div key=${key}><dt><span class=${`mark ${key}`}></span>${label}</dt>
      <dd class="number">${numeral(sum(key))} <span class="quiet">in the last minute</span></dd></div>`)}</dl>
    <p class="quiet">Counted by this browser, for the last five minutes at most, among the claims that you may read. A hand-off is a grant to a claim that waited.
      Refusals (the resource was taken, or a limit was reached) are counted at the connected server only.</p>
  </section>`;
}

/** The minimum number of seconds that the plot shows. */
const shortestPlot = 60;

const clock = (second) => new Date(second * 1000).toLocaleTimeString();

function Plot({seconds}) {
  const box = useRef(), plot = useRef();
  useEffect(() => {
    let gone = false, observer;
    import('../vendor/uplot.js').then(({default: UPlot}) => {
      if (gone || !box.current) return; // the page may have been left meanwhile
      const probe = box.current.appendChild(document.createElement('i')); // a canvas needs colors, not CSS variables
      const color = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
      const axis = {stroke: color('quiet'), grid: {stroke: color('line'), width: 1}, ticks: {stroke: color('line'), width: 1}};
      plot.current = new UPlot({
        width: box.current.clientWidth, height: 180, legend: {show: false}, cursor: {show: false},
        scales: {x: {range: (_, first, last) => (last === null ? [0, shortestPlot].map((s) => s + Date.now() / 1000 - shortestPlot) : [Math.min(first, last - shortestPlot), last])}, y: {range: (_, low, high) => [0, Math.max(high, 5)]}},
        axes: [{...axis, incrs: [10, 30, 60, 120], values: (_, times) => times.map(clock)}, {...axis, incrs: [1, 10, 100, 1000, 10000].flatMap((n) => [n, 2 * n, 5 * n])}],
        series: [{}, ...series.map(({key, label}) => ({label, stroke: color(key), width: 2, points: {show: false}}))],
      }, [[], ...series.map(() => [])], box.current);
      observer = new ResizeObserver(([{contentRect}]) => plot.current?.setSize({width: contentRect.width, height: 180}));
      observer.observe(box.current);
    });
    return () => { gone = true; observer?.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, []);
  useEffect(() => {
    plot.current?.setData([seconds.map((s) => s.at), ...series.map(({key}) => seconds.map((s) => s[key]))]);
  }, [seconds]);
  return html`<div class="plot" ref=${box} role="img" aria-label="Grants, hand-offs, expiries, aborted claims and refusals in each of the last seconds; the figures below have the sums"></div>`;
}

/** Servers shows the servers, to callers with the right to administer. */
function Servers({of: status}) {
  if (status.error?.status === 403) {
    return html`<section><h2>Servers</h2><p class="quiet">They are shown to callers with the right administer on all resources.</p></section>`;
  }
  const s = status.data;
  return html`<section aria-labelledby="servers"><h2 id="servers">Servers</h2>
    <${Loading} of=${status} />
    ${s && html`
      <${Table} label="Servers" rows=${s.servers} keyOf=${(server) => server.name} columns=${[
        {title: 'Host', cell: (server) => html`<${Text} value=${server.host} />`},
        {title: 'Version', cell: (server) => html`<${Text} value=${server.version} />`},
        {title: 'Started', cell: (server) => html`<${When} at=${server.started} />`},
        {title: 'Silent for', number: true, cell: (server) => html`<span class="number">${duration(server.silent)}</span>`},
        {title: 'Server', cell: (server) => html`<${Text} value=${server.name} />`},
      ]} />
      <p class="quiet">Database: ${s.database.engine} ${s.database.version}. ${s.clock.lease_time_runs ? 'Lease time runs.' : `Lease time stands still: ${s.clock.reason}.`}
        <button type="button" class="small" onClick=${status.reload}>Look again</button></p>`}
  </section>`;
}
