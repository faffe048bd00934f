// An OIDC provider for tests: node provider.js PORT KEY-ID
// Each key id has a key of its own, so a start with another one is a rotation of the keys.
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const [port, kid] = process.argv.slice(2);
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const jwk = { ...privateKey.export({ format: 'jwk' }), kid, use: 'sig', alg: 'RS256' };
const program = (client_id) => ({
  client_id, client_secret: 'secret-of-the-test', grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
});

const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: { keys: [jwk] },
  clients: [
    program('ci'), program('short'),
    {
      client_id: 'web', client_secret: 'secret-of-the-test', redirect_uris: (process.env.REDIRECT_URIS ?? 'http://127.0.0.1/callback').split(' '),
      grant_types: ['authorization_code'], response_types: ['code'],
    },
    {
      client_id: 'console', token_endpoint_auth_method: 'none', redirect_uris: (process.env.REDIRECT_URIS ?? 'http://127.0.0.1/callback').split(' '),
      grant_types: ['authorization_code'], response_types: ['code'],
    },
  ],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true }, // takes any password
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      getResourceServerInfo: (_ctx, resource, client) => ({
        scope: 'locks', audience: resource, accessTokenFormat: 'jwt',
        accessTokenTTL: client.clientId === 'short' ? 2 : Number(process.env.SECONDS ?? 600),
      }),
    },
  },
  extraTokenClaims: () => ({ groups: ['builders'] }),
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  pkce: { required: (_ctx, client) => client.clientId === 'console' },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
