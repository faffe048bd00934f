// The frame of the page: navigation, the current page, the identity of the user, and whether the page is live.
import {get} from './lib/api.js';
import {html, render, useEffect, useRef, useState} from './lib/html.js';
import {connectHub, listen, publish, signIn, useMessage} from './lib/live.js';
import {link, useRoute} from './lib/router.js';
import {comeBack, SignIn} from './lib/signin.js';
import {Age} from './lib/time.js';
import {announce, Text, visible} from './lib/ui.js';
import * as claim from './pages/claim.js';
import * as claims from './pages/claims.js';
import * as overview from './pages/overview.js';
import * as resource from './pages/resource.js';
import * as resources from './pages/resources.js';
import * as session from './pages/session.js';
import * as sessions from './pages/sessions.js';
import * as whoami from './pages/whoami.js';

/** The pages by the first segment of the path: the page of the list, and the page of one item. */
const pages = {
  '': [overview, overview.Overview],
  resources: [resources, resources.Resources, resource, resource.Resource],
  claims: [claims, claims.Claims, claim, claim.Claim],
  sessions: [sessions, sessions.Sessions, session, session.Session],
  whoami: [whoami, whoami.WhoAmI],
};
const navigation = [['', 'Overview'], ['resources', 'Resources'], ['claims', 'Claims'], ['sessions', 'Sessions'], ['whoami', 'Who am I?']];

function pageOf(path) {
  const [list, List, one, One] = pages[path[0] ?? ''] ?? [];
  if (path.length > 1 && One) return {title: one.title(path), Page: One};
  if (path.length <= 1 && List) return {title: list.title, Page: List};
  return {title: 'Nothing here', Page: () => html`<h1>Nothing here</h1><p>The console has no page with this address.</p>`};
}

function App() {
  const {path, query} = useRoute();
  const {title, Page} = pageOf(path);
  const identity = useIdentity();
  const main = useRef();
  const address = path.join('/');
  const before = useRef(address);
  useKeptFocus(main);
  useEffect(() => {
    document.title = `${visible(title)} – Locket`;
    if (before.current === address) return;
    before.current = address; // another page: the keyboard and screen readers begin at its top
    main.current.focus();
    scrollTo(0, 0);
  }, [address, title]);
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>To the content</a>
    <header>
      <a class="brand" href=${link([])}>Locket</a>
      <nav aria-label="Pages">${navigation.map(([name, label]) => html`<a key=${name} href=${link(name ? [name] : [])} aria-current=${(path[0] ?? '') === name ? 'page' : undefined}>${label}</a>`)}</nav>
      <${Me} identity=${identity.value} />
    </header>
    <section aria-label="Connection"><${Liveness} /></section>
    <main id="main" tabindex="-1" ref=${main}>
      ${identity.problem ? html`<${SignIn} problem=${identity.problem} />`
        : identity.value ? html`<${Page} key=${address} path=${path} query=${query} />`
        : identity.error ? html`<p class="problem" role="alert">${identity.error}</p>` : html`<p class="quiet">Loading…</p>`}
    </main>`;
}

/** useKeptFocus moves the focus to the page when the focused element is removed, so that keyboard users keep their place. */
function useKeptFocus(main) {
  useEffect(() => {
    let last = null;
    const focused = ({target}) => { last = target; };
    const observer = new MutationObserver(() => {
      if (last && !last.isConnected && document.activeElement === document.body) main.current.focus({preventScroll: true});
    });
    main.current.addEventListener('focusin', focused);
    observer.observe(main.current, {childList: true, subtree: true});
    return () => { observer.disconnect(); main.current?.removeEventListener('focusin', focused); };
  }, []);
}

/** useIdentity returns the identity of the caller. It asks again when the credential or the connection changes. */
function useIdentity() {
  const [state, set] = useState({});
  useEffect(() => {
    let asked = 0;
    const ask = async () => {
      const mine = ++asked;
      try {
        const value = await get('v1/whoami/');
        if (mine !== asked) return;
        publish({type: 'me', identity: value});
        set({value});
      } catch (error) {
        if (mine !== asked) return;
        if (error.status === 401 || error.status === 403) set({problem: error.message});
        else { set((known) => (known.value ? known : {error: error.message})); setTimeout(ask, 2000); }
      }
    };
    const ends = [
      listen('credential', ask),
      listen('unauthenticated', ({message}) => { asked++; set({problem: message}); }),
      listen('state', ({state: feed}) => { if (feed === 'live' || feed === 'refused') ask(); }),
    ];
    ask();
    return () => ends.forEach((end) => end());
  }, []);
  return state;
}

function Me({identity}) {
  if (!identity) return null;
  return html`<a class="api" href="../docs">API</a><a class="me" href=${link(['whoami'])}>${identity.authentication ? html`<${Text} value=${identity.name} none="anonymous" />` : 'no authentication'}</a>`;
}

/** Liveness shows whether the page is up to date, and if not, since when. */
function Liveness() {
  const feed = useMessage('state');
  const last = useRef();
  useEffect(() => {
    if (!feed) return;
    if (last.current && feed.state === 'lost' && last.current !== 'lost') announce('The connection is lost. The page is not live.');
    if (last.current === 'lost' && feed.state === 'live') announce('The page is live again.');
    if (feed.state !== 'connecting') last.current = feed.state;
  }, [feed]);
  if (!feed || feed.state === 'connecting') return html`<p class="liveness">Connecting…</p>`;
  if (feed.state === 'live') return html`<p class="liveness live">Live</p>`;
  const since = new Date(feed.since).toISOString();
  return html`<p class="liveness lost">Not live for <${Age} since=${since} />: <${Text} value=${feed.reason} none="the connection is lost" />. ${feed.state === 'lost' && 'Reconnecting.'}</p>`;
}

const arrived = comeBack(); // before the address is read
connectHub();
if (arrived) signIn(null); // in all tabs
render(html`<${App} />`, document.getElementById('app'));
