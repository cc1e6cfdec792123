package adapter

import "fmt"

// MakingTable is the name of an empty table that exists while loadgen makes a tool's tables; its comment names them.
// They get loadgen's mark only when they are whole, so that only this table distinguishes the rest of an interrupted
// call from other people's tables.
func MakingTable(tool string) string { return "plumbline_loadgen_making_" + tool }

// Note are the statements that make such a table, with a comment, in the place of an earlier one. PostgreSQL's is one,
// and so a transaction.
func Note(engine, table, comment string) []string {
	if engine == "mysql" {
		return []string{NoNote(table), fmt.Sprintf("create table %s (id int primary key) comment = '%s'", table, comment)}
	}
	return []string{fmt.Sprintf("%s; create table %s (id int primary key); comment on table %[2]s is '%s'", NoNote(table), table, comment)}
}

// NoNote is the statement that drops it.
func NoNote(table string) string { return "drop table if exists " + table }

// ReadNote reads the numbers of a comment of a form with as many %d, and reports whether it is one. Of anything else it
// reads none.
func ReadNote(comment, form string, numbers ...*int) bool {
	read := make([]int, len(numbers))
	var into, values []any
	for i := range read {
		into = append(into, &read[i])
	}
	if _, err := fmt.Sscanf(comment, form, into...); err != nil {
		return false
	}
	for _, n := range read {
		values = append(values, n)
	}
	if comment != fmt.Sprintf(form, values...) {
		return false
	}
	for i, n := range read {
		*numbers[i] = n
	}
	return true
}
