// Runs one SQL statement at a fixed rate: an open loop, as far as there are free VUs. What finds
// none is dropped, which k6 counts; k6 does not report how long an iteration waited.
import exec from "k6/execution";
import sql from "k6/x/sql";
import mysql from "k6/x/sql/driver/mysql";
import postgres from "k6/x/sql/driver/postgres";

const db = sql.open(__ENV.LOADGEN_ENGINE === "mysql" ? mysql : postgres, __ENV.LOADGEN_K6_DSN);

// The kinds of errors by their words, the first that fits.
const kinds = [
  ["storage", /No space left on device|Input\/output error|Read-only file system|Disk full|is full/],
  ["authentication", /authentication failed|no pg_hba.conf entry|not permitted to log in|Access denied|password/],
  ["read_only", /read-only transaction|--read-only option|read_only option|session is read-only/],
  ["connection", /connect|refused|EOF|reset|broken pipe|bad connection|shutting down|starting up|terminating|recovery mode/],
];

function kindOf(error) {
  const found = kinds.find((kind) => kind[1].test(error));
  return found ? found[0] : "other";
}

// When this VU last reported an error.
let reported = 0;

export const options = {
  scenarios: {
    load: {
      executor: "constant-arrival-rate",
      rate: Math.round(Number(__ENV.LOADGEN_RATE) * 1000),
      timeUnit: "1000s",
      duration: "8760h",
      preAllocatedVUs: Number(__ENV.LOADGEN_VUS),
      maxVUs: Number(__ENV.LOADGEN_VUS),
      gracefulStop: "5s",
    },
  },
};

// The iteration's own duration is the measure; the tag marks whether it counts as a failure.
export default function () {
  exec.vu.metrics.tags.failed = "no";
  try {
    db.query(__ENV.LOADGEN_QUERY);
  } catch (error) {
    exec.vu.metrics.tags.failed = kindOf(String(error));
    if (Date.now() - reported > 10000) {
      reported = Date.now();
      console.error(String(error));
    }
  }
}

export function teardown() {
  db.close();
}
