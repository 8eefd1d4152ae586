/** Which doors open, and what is missing behind those that do not. */
async function main(): Promise<void> {
  const opened: Record<string, string> = {};
  for (const door of process.argv.slice(2)) {
    opened[door] = await import(door).then(
      () => 'opens',
      (error: Error) =>
        /Cannot find (package|module) 'ioredis'/.test(error.message)
          ? 'needs ioredis'
          : error.message,
    );
  }
  console.log(JSON.stringify(opened));
}

void main();
