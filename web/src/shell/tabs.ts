// Tabs of one console share its session: a new tab asks the others, which keep the page's half of it.
// Only pages of this origin hear each other. If the server has ended and another program serves the address, its page could
// ask, too; so a tab answers only when the server has just proved that it is the same.

export interface Halves {
  secret: string;
  key: string;
}

type Channel = Pick<BroadcastChannel, 'postMessage' | 'close' | 'onmessage'>;

const name = 'drydock-session';
const question = 'ask';
const patience = 1500;

const isHex = (text: unknown): text is string => typeof text === 'string' && /^[0-9a-f]{64}$/.test(text);
const isSecret = (text: unknown): text is string => typeof text === 'string' && /^[A-Za-z0-9_-]{43}$/.test(text);

function halvesOf(message: unknown): Halves | undefined {
  if (typeof message !== 'object' || message === null) return undefined;
  const { secret, key } = message as Partial<Record<keyof Halves, unknown>>;
  return isSecret(secret) && isHex(key) ? { secret, key } : undefined;
}

export const openChannel = (): Channel => new BroadcastChannel(name);

// offer answers other tabs as long as proven says that the server is the same. It returns how to stop.
export function offer(halves: Halves, proven: () => Promise<boolean>, channel: Channel = openChannel()): () => void {
  let asked = false;
  channel.onmessage = (message) => {
    if (message.data !== question || asked) return;
    asked = true;
    proven().then((is) => {
      if (is) channel.postMessage(halves);
    }, () => undefined).finally(() => {
      asked = false;
    });
  };
  return () => {
    channel.close();
  };
}

// askTabs returns the session of another tab, if there is one that answers.
export function askTabs(channel: Channel = openChannel(), wait = patience): Promise<Halves | undefined> {
  return new Promise((resolve) => {
    const end = (halves: Halves | undefined): void => {
      clearTimeout(timer);
      channel.close();
      resolve(halves);
    };
    const timer = setTimeout(() => {
      end(undefined);
    }, wait);
    channel.onmessage = (message) => {
      const halves = halvesOf(message.data);
      if (halves) end(halves);
    };
    channel.postMessage(question);
  });
}
