package testdb

// ForbidComments has each comment on a table of a name like the pattern fail.
func (p *Postgres) ForbidComments(pattern string) {
	p.t.Helper()
	p.Exec(`create function forbid() returns event_trigger language plpgsql as $$ begin
		if exists(select from pg_event_trigger_ddl_commands() where object_identity like '` + pattern + `') then raise 'no comments here'; end if; end $$`)
	p.Exec("create event trigger forbid on ddl_command_end when tag in ('COMMENT') execute function forbid()")
}
