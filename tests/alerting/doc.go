// Package alerting tests what becomes of alerts: a real Alertmanager with the configuration that
// the project gives as an example, and a real Prometheus before it.
package alerting
