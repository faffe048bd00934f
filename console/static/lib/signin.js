// Signing in: at the server's OIDC provider, or with a bearer credential. Certificates and proxies do not involve this page.
//
// The server signs people in at the provider: console/signin redirects there, and the JWT is in a cookie that this page cannot read.
import {call} from './api.js';
import {html, useState} from './html.js';
import {signIn} from './live.js';

/** The provider, if the server has one, and the prefix of the identities of people who signed in there. */
const {provider, identities} = document.documentElement.dataset;

const outcomes = {
  stale: 'Signing in took too long, or was started in another window. Try again.',
  failed: 'Signing in did not succeed. The server’s log says why.',
  unavailable: 'The provider does not answer. Try again later.',
  large: 'The provider’s JWT does not fit into a cookie. It must have less in it, such as groups.',
};

/** The page that a person leaves to sign in is kept in this tab only, until they come back. */
const placeKey = 'locket-before-signing-in';
let outcome = null;

/** comeBack is called when the page is loaded: it restores the page, and returns whether somebody has just signed in. */
export function comeBack() {
  outcome = new URLSearchParams(location.search).get('signin');
  if (outcome === null) return false;
  history.replaceState(null, '', location.pathname + (sessionStorage.getItem(placeKey) ?? location.hash));
  sessionStorage.removeItem(placeKey);
  return outcome === 'done';
}

const leave = () => sessionStorage.setItem(placeKey, location.hash);

/** SignOut is the button that signs out. */
export function SignOut({me, credential}) {
  const [error, setError] = useState('');
  const signedIn = provider && me?.name?.startsWith(identities);
  if (!credential && !signedIn) return null;
  const act = async () => {
    try {
      if (signedIn) await call('POST', 'console/signout');
      outcome = null;
      signIn(null);
    } catch (problem) { setError(problem.message); }
  };
  return html`<p><button type="button" onClick=${act}>Sign out</button> <span class="quiet">Forgets the credential, in all tabs${signedIn && `; not at ${provider}`}.</span></p>
    ${error && html`<p class="problem" role="alert">${error}</p>`}`;
}

export function SignIn({problem}) {
  const [credential, setCredential] = useState('');
  const submit = (event) => {
    event.preventDefault();
    const bearer = credential.trim();
    setCredential('');
    if (bearer) signIn(bearer);
  };
  return html`
    <h1>Sign in</h1>
    <p class="problem" role="alert">${outcomes[outcome] ?? problem}</p>
    ${provider && html`<p class="actions"><a class="button" href="signin" onClick=${leave}>Sign in at ${provider}</a></p>
      <h2>With a credential</h2>`}
    <form class="signin" onSubmit=${submit}>
      <label>Credential
        <input name="credential" type="password" required autocomplete="off" spellcheck=${false} value=${credential} onInput=${(e) => setCredential(e.target.value)} /></label>
      <p class="actions"><button type="submit">Sign in</button></p>
    </form>
    <p class="quiet">A credential that the server knows (<code>locket credential new</code>), or a JWT of its OIDC provider. It stays in the memory of this browser’s tabs
      until the last of them is closed, and is sent in the header <code>Authorization</code> alone.</p>
    <p class="quiet">With a client certificate, or behind a proxy that signs you in, there is nothing to enter: the browser or the proxy shows who you are.</p>`;
}
