// An OpenID provider on 127.0.0.1: node issuer.mjs PORT REDIRECT_URI AFTER_LOGOUT_URI GROUPS
// Every name can sign in; "kim" is in many groups. Needs npm's oidc-provider.
import { randomBytes } from 'node:crypto';
import { Provider } from 'oidc-provider';

const [port, redirect, afterLogout, groups] = process.argv.slice(2);
const many = Array.from({ length: Number(groups) }, (_, n) => `group-${n}-${randomBytes(24).toString('hex')}`);
const claims = (id) => ({
  sub: id,
  email: `${id}@example.org`,
  email_verified: true,
  groups: id === 'eve' ? ['guests'] : ['staff', ...(id === 'kim' ? many : [])],
});

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'app',
    client_secret: 'a-secret-of-this-drill-that-is-long-enough',
    redirect_uris: [redirect],
    post_logout_redirect_uris: [afterLogout],
    grant_types: ['authorization_code', 'refresh_token'],
  }],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['groups'] },
  conformIdTokenClaims: false,
  cookies: { keys: ['of this drill'] },
  features: { devInteractions: { enabled: true } },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => claims(id) }),
  issueRefreshToken: async () => true,
  pkce: { required: () => false },
  rotateRefreshToken: true,
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
