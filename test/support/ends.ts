/** How a call ended: with its value, or the code of its error, or else its message. */
export async function endOf(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
    return code ?? message;
  }
}
