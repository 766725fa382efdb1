// A stream to a guest: opened, closed by the other side, and opened again by the user or when the machine runs again.
import { openSocket, request } from '../kube/client';
import { asFailure, type Failure } from '../kube/failure';
import { kinds, subresource } from '../kube/paths';

export const plainProtocol = 'plain.kubevirt.io';

export type StreamState = 'connecting' | 'connected' | 'ended' | 'refused';

export function openStream(namespace: string, name: string, verb: 'console' | 'vnc'): WebSocket {
  const socket = openSocket(subresource(kinds.vmi, namespace, name, verb), plainProtocol);
  socket.binaryType = 'arraybuffer';
  return socket;
}

// Browsers hide why a stream was refused; the same address by a plain request has the sentence.
export async function whyRefused(namespace: string, name: string, verb: 'console' | 'vnc'): Promise<Failure | undefined> {
  try {
    await request(subresource(kinds.vmi, namespace, name, verb));
    return undefined;
  } catch (error) {
    return asFailure(error);
  }
}

// Leaves a console or screen, which otherwise keeps all keys, as in virtctl.
export function leaves(event: KeyboardEvent): boolean {
  return event.ctrlKey && event.key === ']';
}

// A guest can ask a terminal for answers and not read them; so they don't wait without bound.
const maxUnsent = 1 << 20;

export function sendBounded(socket: Pick<WebSocket, 'readyState' | 'bufferedAmount' | 'send'>, bytes: Uint8Array<ArrayBuffer>): boolean {
  const open = 1; // WebSocket.OPEN
  if (socket.readyState !== open || socket.bufferedAmount + bytes.length > maxUnsent) return false;
  socket.send(bytes);
  return true;
}
