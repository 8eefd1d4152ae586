/** Waits for `promise`, whatever comes of it, but no longer than `ms` milliseconds. */
export async function atMost(ms: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, Math.max(0, ms));
  });
  await Promise.race([promise.catch(() => undefined), limit]);
  clearTimeout(timer);
}
