import {
  type CanActivate,
  type ExecutionContext,
  Injectable,
  UnauthorizedException,
} from '@nestjs/common';
import type { Request } from 'express';

export interface User {
  readonly id: string;
}

/** A request that has passed the guard. */
export type AuthenticatedRequest = Request & { readonly user: User };

/** Stands in for sessions or signed tokens: these are written here, so they prove nothing. */
const USERS = new Map<string, User>([
  ['ada-demo-token', { id: 'ada' }],
  ['bob-demo-token', { id: 'bob' }],
]);

@Injectable()
export class BearerGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest<Request>();
    const [, token = ''] = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '') ?? [];
    const user = USERS.get(token);
    if (!user) throw new UnauthorizedException();
    Object.assign(request, { user });
    return true;
  }
}
