// The identity of the caller, and its rights.
import {html, useState} from '../lib/html.js';
import {useMessage} from '../lib/live.js';
import {useRight} from '../lib/end.js';
import {go, link} from '../lib/router.js';
import {SignOut} from '../lib/signin.js';
import {Text} from '../lib/ui.js';

export const title = 'Who am I?';

const rights = {
  read: 'see claims, queues and locks, and watch them', hold: 'claim it, and renew one’s own claims',
  revoke: 'end claims of others', administer: 'renew claims of others, and see their user data',
};

export function WhoAmI({query}) {
  const me = useMessage('me')?.identity;
  const credential = useMessage('credential')?.credential;
  const [name, setName] = useState(query.resource ?? '');
  const submit = (event) => { event.preventDefault(); go(link(['whoami'], {resource: name})); };
  return html`
    <h1>Who am I?</h1>
    ${me && html`<dl class="holder">
      <div><dt>Identity</dt><dd>${me.authentication ? html`<${Text} value=${me.name} none="nobody: no credential was shown" />` : 'This server authenticates nobody: everybody who reaches it may do everything.'}</dd></div>
      ${me.groups.length > 0 && html`<div><dt>Groups</dt><dd>${me.groups.map((group, i) => html`${i > 0 && ', '}<${Text} value=${group} />`)}</dd></div>`}
    </dl>`}
    <${SignOut} me=${me} credential=${credential} />
    <section aria-labelledby="rights"><h2 id="rights">What may I do?</h2>
      <form class="filters" onSubmit=${submit}><label>Resource <input value=${name} required maxlength="1024" autocomplete="off" spellcheck=${false} onInput=${(e) => setName(e.target.value)} /></label>
        <p class="actions"><button type="submit">Ask</button></p></form>
      ${query.resource && html`<table><thead><tr><th scope="col">Right</th><th scope="col">Allows to</th><th scope="col">You</th></tr></thead>
        <tbody>${Object.entries(rights).map(([right, meaning]) => html`<${Right} key=${right} right=${right} meaning=${meaning} resource=${query.resource} />`)}</tbody></table>`}
    </section>`;
}

function Right({right, meaning, resource}) {
  const answer = useRight(resource, right);
  return html`<tr><th scope="row">${right}</th><td>${meaning}</td>
    <td>${answer && `${answer.allowed ? 'may' : 'may not'}${answer.line ? `: line ${answer.line} of the rules` : answer.allowed ? '' : ': no rule allows it'}`}</td></tr>`;
}
