// Package predict predicts what a workload's response times would be on another storage class, before it is moved.
package predict
