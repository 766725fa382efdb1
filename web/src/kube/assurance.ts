// Whether the server at the page's address is still the one that served the page. When that has ended, another user of the
// computer may take its port; he would be given what is typed, and could show anything as the cluster's. So the page
// holds a connection that ends with the server. After its end nothing is asked until the server has proved itself again.
import { Failure, unreachable } from './failure';

export interface Means {
  // Asks for a proof; false means that another program answers.
  prove: () => Promise<boolean>;
  // Holds a connection, and calls lost once when it ends.
  hold: (lost: () => void) => Promise<() => void>;
  // Called when another program answers.
  foreign: () => void;
  changed: () => void;
}

export class Assurance {
  private sure = false;
  private asking: Promise<void> | undefined;

  constructor(private readonly means: Means) {}

  isSure(): boolean {
    return this.sure;
  }

  // wait returns when the server is known to be the same, and fails if it is not, or does not answer.
  async wait(): Promise<void> {
    if (this.sure) return;
    this.asking ??= this.ask().finally(() => {
      this.asking = undefined;
    });
    await this.asking;
  }

  private async ask(): Promise<void> {
    await this.check();
    const connection = { held: true };
    const release = await this.means.hold(() => {
      connection.held = false;
      this.set(false);
    });
    try {
      // Between the proof and the connection the server may have ended.
      await this.check();
    } catch (error) {
      release();
      throw error;
    }
    if (!connection.held) throw new Failure(unreachable, '', 'the connection to the server was lost');
    this.set(true);
  }

  private async check(): Promise<void> {
    if (await this.means.prove()) return;
    this.means.foreign();
    throw new Failure(401, 'Unauthorized', 'another program answers at the address of this page');
  }

  private set(sure: boolean): void {
    if (sure === this.sure) return;
    this.sure = sure;
    this.means.changed();
  }
}
