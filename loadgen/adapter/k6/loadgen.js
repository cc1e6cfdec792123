// Runs one SQL statement at a fixed rate: an open loop, as far as there are free VUs. What finds
// none is dropped, which k6 counts; k6 does not tell how long an iteration waited.
import exec from "k6/execution";
import sql from "k6/x/sql";
import mysql from "k6/x/sql/driver/mysql";
import postgres from "k6/x/sql/driver/postgres";

const db = sql.open(__ENV.LOADGEN_ENGINE === "mysql" ? mysql : postgres, __ENV.LOADGEN_K6_DSN);

const lostServer = /connect|refused|EOF|reset|broken pipe|bad connection|shutting down|starting up|terminating|authentication|Access denied/;

// When this VU last told of an error.
let told = 0;

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

// The iteration's own duration is the measure; the tag says whether it counts as a failure.
export default function () {
  exec.vu.metrics.tags.failed = "no";
  try {
    db.query(__ENV.LOADGEN_QUERY);
  } catch (error) {
    exec.vu.metrics.tags.failed = lostServer.test(String(error)) ? "connection" : "other";
    if (Date.now() - told > 10000) {
      told = Date.now();
      console.error(String(error));
    }
  }
}

export function teardown() {
  db.close();
}
