import type { Status, StatusCause } from './types';

// Failure is an answer that is not a success, in the server's own words.
export class Failure extends Error {
  readonly code: number;
  readonly reason: string;
  readonly causes: StatusCause[];

  constructor(code: number, reason: string, message: string, causes: StatusCause[] = []) {
    super(message);
    this.name = 'Failure';
    this.code = code;
    this.reason = reason;
    this.causes = causes;
  }
}

export function fromStatus(code: number, status: Status): Failure {
  const causes = Array.isArray(status.details?.causes) ? status.details.causes : [];
  return new Failure(status.code ?? code, status.reason ?? '', status.message ?? `HTTP ${String(code)}`, causes);
}

// A body that is no Status is shown as it is.
export function fromBody(code: number, body: string): Failure {
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed === 'object' && parsed !== null && 'message' in parsed) return fromStatus(code, parsed as Status);
  } catch {
    // not JSON
  }
  return new Failure(code, '', body.trim() === '' ? `HTTP ${String(code)}` : body.trim());
}

// The code of a request that got no answer.
export const unreachable = 0;

// Reasons of an answer that did not come to its end, and of one that the web console's server does not pass.
export const cut = 'AnswerCut';
export const tooLarge = 'AnswerTooLarge';

export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  return new Failure(unreachable, '', error instanceof Error ? error.message : String(error));
}
