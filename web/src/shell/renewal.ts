// A session of an identity provider gets a new token before the old one is over, by one tab for all of them.
import { asFailure } from '../kube/failure';

export interface Means {
  later: (run: () => void, milliseconds: number) => void;
  // Runs one at a time, of all tabs.
  alone: (run: () => Promise<number | undefined>) => Promise<number | undefined>;
  // In how many seconds the session's token is over; undefined if it can't be renewed.
  look: () => Promise<number | undefined>;
  renew: () => Promise<number | undefined>;
}

const soonest = 5;
const longest = 12 * 3600;
const pause = 15;

export const waitOf = (left: number): number => Math.min(longest, Math.max(soonest, left * 0.75));

export function keepRenewed(left: number, means: Means): void {
  const again = (seconds: number): void => {
    means.later(() => {
      means.alone(async () => {
        const now = await means.look();
        // Another tab may have renewed it.
        return now === undefined || now > left / 2 ? now : means.renew();
      }).then((next) => {
        if (next !== undefined) keepRenewed(next, means);
      }, (error: unknown) => {
        // The page's next request says that the session is over.
        if (asFailure(error).code !== 401) again(pause);
      });
    }, seconds * 1000);
  };
  again(waitOf(left));
}

// renewOver reports whether a token was over and there is a new one, for example after this computer slept.
export async function renewOver(means: Means): Promise<boolean> {
  let renewed = false;
  try {
    await means.alone(async () => {
      const left = await means.look();
      if (left === undefined || left > 0) return left;
      const next = await means.renew();
      renewed = next === undefined || next > 0;
      return next;
    });
  } catch {
    return false; // people sign in again
  }
  return renewed;
}
