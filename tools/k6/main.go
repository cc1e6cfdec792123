// Command k6 is Grafana's k6 with the SQL module k6/x/sql and its drivers k6/x/sql/driver/postgres and k6/x/sql/driver/mysql.
package main

import (
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/grafana/xk6-sql"
	"github.com/grafana/xk6-sql/sql"
	_ "github.com/lib/pq"
	"go.k6.io/k6/cmd"
)

func init() {
	sql.RegisterModule("postgres")
	sql.RegisterModule("mysql")
}

func main() {
	cmd.Execute()
}
