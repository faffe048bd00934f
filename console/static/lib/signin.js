// Signing in with a bearer credential. Certificates and proxies need nothing of this page.
import {html, useState} from './html.js';
import {signIn} from './live.js';

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
    <p class="problem" role="alert">${problem}</p>
    <form class="signin" onSubmit=${submit}>
      <label>Credential
        <input name="credential" type="password" required autocomplete="off" spellcheck=${false} value=${credential} onInput=${(e) => setCredential(e.target.value)} /></label>
      <p class="actions"><button type="submit">Sign in</button></p>
    </form>
    <p class="quiet">A credential that the server knows (<code>locket credential new</code>), or a JWT of its OIDC provider. It stays in the memory of this browser’s tabs
      until the last of them is closed, and is sent in the header <code>Authorization</code> alone.</p>
    <p class="quiet">With a client certificate, or behind a proxy that signs you in, there is nothing to enter: the browser or the proxy shows who you are.</p>`;
}
