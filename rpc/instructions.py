"""What a model is told when it meets this server: which tool for what, and how they go together."""

INSTRUCTIONS = """\
cellhost runs Python for you, keeps a record of every job and saved file, and answers SQL about them.

- Run code: exec_background starts a job and returns its exec_id at once. Then exec_wait until it is done, or go on \
with other work and look in with exec_peek. Of long output you see the beginning and the end: for all of it call \
exec_peek with since "0", then with since set to each answer's next. exec_interrupt stops a job. Each job has a fresh \
kernel: keep what the next job needs in files.
- Work step by step: exec runs a cell in a kernel that keeps its variables, and answers with what it printed. Use it \
for short steps that build on each other, and exec_background for what runs long or side by side. A cell that takes \
long goes on as a job: exec_wait for its exec_id. exec_restart gives the session a fresh kernel.
- Files: jobs run in the workspace folder, the same one that list_files, read_file, write_file and edit_file work on. \
Write longer code to a module with write_file and import it in the job. kernel_info tells which packages there are.
- Keep results: save_artifact stores a file of the workspace for good, in versions. Name what it was made from in \
input_version_ids. lineage_get and lineage_graph tell later where a file came from. list_artifact_versions, \
read_artifact and diff_artifact show earlier versions, restore_artifact_version brings one back.
- Ask the records: query_schema lists the tables, query runs one read-only SELECT over them, for example \
"SELECT exec_id, status FROM jobs ORDER BY created_at DESC LIMIT 10". frames finds earlier sessions.
- In a job, `host` calls back: host.query(sql), host.progress(done, total), host.save_artifact(path), \
host.read_file(path).

A call that needs approval may be refused: the message says how a person can allow it. Do not look for a way around it.
"""
