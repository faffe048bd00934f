// Parts that several pages use.
import {html, useEffect, useLayoutEffect, useRef, useState} from './html.js';
import {useMessage} from './live.js';
import {link} from './router.js';

/** announce makes screen readers say a text, once. */
export function announce(text) { document.getElementById('announcements').textContent = text; }

// Characters that are invisible, or change the order of the text around them: controls, and marks of direction.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const escaped = (character) => ({'\n': '\\n', '\r': '\\r', '\t': '\\t'})[character] ?? '\\u' + character.charCodeAt(0).toString(16).padStart(4, '0');

/** visible returns a text with invisible characters as escapes. */
export const visible = (text) => text.replace(unseen, escaped);

/** Text shows a text of a client: isolated from the text around it, and with invisible characters as escapes. */
export function Text({value, none = 'none'}) {
  if (value === null || value === undefined || value === '') return html`<span class="quiet">${none}</span>`;
  return html`<bdi class="text">${visible(value)}</bdi>`;
}

/** ResourceLink, ClaimLink and SessionLink link to the page of a resource, a claim or a session. */
export const ResourceLink = ({name}) => html`<a class="name" href=${link(['resources', name])}><${Text} value=${name} /></a>`;
export const ClaimLink = ({id, children}) => html`<a class="name" href=${link(['claims', id])}>${children ?? html`<${Text} value=${id} />`}</a>`;
export const SessionLink = ({id}) => html`<a class="name" href=${link(['sessions', id])}><${Text} value=${id} /></a>`;

/** The component Who shows the owner of a claim, otherwise the identity that made it. */
export function Who({claim}) {
  return html`<${Text} value=${claim.owner ?? claim.identity ?? claim.session} none="no owner" />`;
}

/** Holder is the holder of a resource, null if nobody holds it. */
export const Holder = ({claim}) => (claim ? html`<${Who} claim=${claim} />` : html`<span class="quiet">nobody</span>`);

/** whoIs is Who in plain text. */
export const whoIs = (claim) => visible(claim.owner ?? claim.identity ?? claim.session ?? 'no owner');

export const Status = ({value}) => html`<span class=${`status ${value}`}>${value}</span>`;

/** Copy is a button that copies a text. */
export function Copy({value, what}) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(String(value));
      announce(`${what} copied`);
    } catch { announce(`${what} could not be copied`); }
  };
  return html`<button class="small" type="button" onClick=${copy} aria-label=${`Copy ${what}`}>Copy</button>`;
}

/** Problem shows an error. */
export function Problem({error}) {
  if (!error) return null;
  return html`<p class="problem" role="alert">${error.message}</p>`;
}

/** Loading shows that an answer is loading, and the error of the last one. */
export function Loading({of}) {
  return html`<${Problem} error=${of.error} />${of.loading && html`<p class="quiet">Loading…</p>`}`;
}

/**
 * Ask is a dialog that explains an action, and does it. It takes the focus, and returns it at its end.
 * act(reason) returns a promise; if it fails, the dialog shows the error and stays open.
 */
export function Ask({title, verb, withReason, children, act, onClose}) {
  const dialog = useRef();
  const [reason, setReason] = useState('');
  const [state, setState] = useState({});
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    if (state.busy) return;
    setState({busy: true});
    try {
      await act(reason);
      onClose();
    } catch (error) { setState({error}); }
  };
  return html`<dialog ref=${dialog} aria-labelledby="ask-title" onClose=${onClose}>
    <form onSubmit=${submit}>
      <h2 id="ask-title">${title}</h2>
      ${children}
      ${withReason && html`<label>Reason, which the claim keeps
        <input name="reason" maxlength="1024" autocomplete="off" value=${reason} onInput=${(e) => setReason(e.target.value)} /></label>`}
      <${Problem} error=${state.error} />
      <p class="actions">
        <button type="submit" class="danger" aria-disabled=${Boolean(state.busy)}>${verb}</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </p>
    </form>
  </dialog>`;
}

/** Verdict shows the state of the service in an answer, but only while the server answers. */
export function Verdict({of, children}) {
  const feed = useMessage('state');
  const known = of.data && !of.error && feed?.state !== 'lost' && feed?.state !== 'refused';
  return known ? children : html`<span class="quiet unknown">Not known: the server does not answer.</span>`;
}

/** Narrower windows show a card for each row of a table. The same width is in style.css. */
const narrow = globalThis.matchMedia?.('(max-width: 30rem)');

function useNarrow() {
  const [is, set] = useState(narrow.matches);
  useEffect(() => {
    const changed = () => set(narrow.matches);
    narrow.addEventListener('change', changed);
    return () => narrow.removeEventListener('change', changed);
  }, []);
  return is;
}

// The explicit roles keep it a table for screen readers when it is shown as cards.
const head = (columns) => html`<thead role="rowgroup"><tr role="row" aria-rowindex="1">${columns.map((c) => html`<th role="columnheader" scope="col" class=${classOf(c)}>${c.title}</th>`)}</tr></thead>`;
const cells = (columns, row) => columns.map((c) => html`<td role="cell" class=${classOf(c)} data-title=${typeof c.title === 'string' ? c.title : ''}>${c.cell(row)}</td>`);
const classOf = ({wide, number}) => [wide && 'wide', number && 'right'].filter(Boolean).join(' ');

/** Table is a table of few rows. columns and keyOf are as for Rows. */
export function Table({label, columns, rows, keyOf, name = ''}) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${label}><table role="table" class=${name}>${head(columns)}
    <tbody role="rowgroup">${rows.map((row) => html`<tr role="row" key=${keyOf(row)}>${cells(columns, row)}</tr>`)}</tbody></table></div>`;
}

/** The height of a row of a list in pixels, and of a line and the space around the lines of a card, as in style.css. */
const wideRowHeight = 40, lineHeight = 28, cardSpace = 17;

/**
 * Rows is a table that renders only its visible rows, so that it may be long. columns are
 * {title, cell(row), wide, number}; keyOf(row) names a row; onEnd is called when the last rows come into view.
 */
export function Rows({label, columns, rows, keyOf, onEnd}) {
  const box = useRef();
  const rowHeight = useNarrow() ? columns.length * lineHeight + cardSpace : wideRowHeight;
  const [view, setView] = useState({top: 0, height: 800});
  useLayoutEffect(() => {
    const look = () => setView({top: box.current.scrollTop, height: box.current.clientHeight});
    look();
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    box.current.addEventListener('scroll', look, {passive: true});
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - 10);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + 10);
  useEffect(() => { if (last >= rows.length && rows.length > 0) onEnd?.(); }, [last, rows.length]);
  return html`<div class="rows" ref=${box} tabindex="0" role="group" aria-label=${label}>
    <table role="table" aria-rowcount=${rows.length + 1}>
      ${head(columns)}
      <tbody role="rowgroup">
        ${first > 0 && html`<tr key="above" class="space" aria-hidden="true"><td colspan=${columns.length} style=${{height: `${first * rowHeight}px`}}></td></tr>`}
        ${rows.slice(first, last).map((row, i) => html`<tr role="row" key=${keyOf(row)} aria-rowindex=${first + i + 2}>${cells(columns, row)}</tr>`)}
        ${last < rows.length && html`<tr key="below" class="space" aria-hidden="true"><td colspan=${columns.length} style=${{height: `${(rows.length - last) * rowHeight}px`}}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

/** numeral shows a whole number with separators. */
const grouped = new Intl.NumberFormat('en');
export const numeral = (n) => grouped.format(n);
