// The person who has signed in, where the console runs in a cluster. Several people may use one browser, one after another.

type Channel = Pick<BroadcastChannel, 'postMessage' | 'close' | 'onmessage'>;
type Kept = Pick<Storage, 'getItem' | 'setItem' | 'clear'>;

const place = 'drydock-owner';

// keepFor removes what another person has left in this tab, such as the draft of a machine with its passwords. The same
// person finds it again after a session that ended by itself.
export function keepFor(user: string, kept: Kept): void {
  if (kept.getItem(place) === user) return;
  kept.clear();
  kept.setItem(place, user);
}

export type Change = 'in' | 'out';

// follow has this tab begin anew when somebody signs in or out in another one, so that no console stays open for whoever
// comes next. It returns how to tell the other tabs.
export function follow(kept: Kept, reload: () => void, channel: Channel = new BroadcastChannel('drydock-account')): (change: Change) => void {
  channel.onmessage = (message) => {
    if (message.data !== 'in' && message.data !== 'out') return;
    if (message.data === 'out') kept.clear();
    reload();
  };
  return (change) => {
    channel.postMessage(change);
  };
}
